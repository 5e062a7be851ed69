"""The system check of Celery tasks: whether their stores can protect them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from django.core.checks import CheckMessage, Error, register

from .settings import TAG


@register(TAG)
def check_tasks(**_kwargs: Any) -> list[CheckMessage]:
    """Check that the lock stores support the tasks. Opens no connection. A project without Celery is not checked."""
    if "celery" not in sys.modules:
        return []
    support = import_module("django_redlock.celery.records.support")  # Celery may not be installed
    return [Error(reason, id="redlock.E005") for reason in support.refused_tasks()]
