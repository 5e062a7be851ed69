"""Keeps a Celery worker from starting if a task has a mode or limit that its lock backend does not support."""

from __future__ import annotations

import sys
from typing import Any

from celery import Celery
from celery.bootsteps import Step

from ..errors import LockNotSupported
from ..single_instance.declared_tasks import refusals
from .old_options import warn_of_old_settings


class CheckTasks(Step):
    """A step in the start of a Celery worker.

    Raises ``LockNotSupported``, which ends the start, if one of the worker's tasks has a mode or limit that its lock
    backend does not support.
    """

    def create(self, parent: Any) -> None:
        app: Celery = parent.app
        tasks = ((name, task.redlock.options) for name, task in app.tasks.items() if hasattr(task, "redlock"))
        warn_of_old_settings(app, sys.modules)
        if refused := list(refusals(tasks)):
            raise LockNotSupported("", "\n".join(refused))
