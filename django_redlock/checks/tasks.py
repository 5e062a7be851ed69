"""The system check of Celery and Django tasks that run once at a time: not every lock backend supports every mode."""

from __future__ import annotations

import sys
from typing import Any

from django.core.checks import CheckMessage, Error, register


@register("redlock")
def check_tasks(**_kwargs: Any) -> list[CheckMessage]:
    """Return an error for each ``single_instance_task`` with a mode or limit that its lock backend does not support.

    Opens no connection. Checks nothing in a project that has imported neither Celery nor ``django_redlock.tasks``.
    """
    if not {"celery", "django_redlock.tasks"} & sys.modules.keys():
        return []
    from ..single_instance.task_lock import refused_tasks

    return [Error(reason, id="redlock.E005") for reason in refused_tasks()]
