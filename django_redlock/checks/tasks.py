"""The system check of Celery and Django tasks that run once at a time. Not every lock store can protect every task."""

from __future__ import annotations

import sys
from typing import Any

from django.core.checks import CheckMessage, Error, register

from .settings import TAG


@register(TAG)
def check_tasks(**_kwargs: Any) -> list[CheckMessage]:
    """Return an error for each task below ``single_instance_task`` that its lock store can't protect.

    Opens no connection. Checks nothing in a project that has imported neither Celery nor ``django_redlock.tasks``.
    """
    if not {"celery", "django_redlock.tasks"} & sys.modules.keys():
        return []
    from ..single_instance.support import refused_tasks

    return [Error(reason, id="redlock.E005") for reason in refused_tasks()]
