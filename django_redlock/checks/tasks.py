"""The system check of tasks that run once at a time: whether their stores can protect them."""

from __future__ import annotations

import sys
from typing import Any

from django.core.checks import CheckMessage, Error, register

from .settings import TAG


@register(TAG)
def check_tasks(**_kwargs: Any) -> list[CheckMessage]:
    """Check that the lock stores support the tasks. Opens no connection. A project without tasks is not checked."""
    if not {"celery", "django_redlock.tasks"} & sys.modules.keys():
        return []
    from ..single_instance.support import refused_tasks

    return [Error(reason, id="redlock.E005") for reason in refused_tasks()]
