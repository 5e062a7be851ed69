"""Keeps a Celery worker from starting if a task has a mode or limit that its lock backend does not support."""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.bootsteps import Step

from ..errors import LockNotSupported
from ..single_instance.declared_tasks import refusals


class CheckTasks(Step):
    """A step in the start of a Celery worker.

    Raises ``LockNotSupported``, which ends the start, if one of the worker's tasks has a mode or limit that its lock
    backend does not support.
    """

    def create(self, parent: Any) -> None:
        app: Celery = parent.app
        tasks = ((name, task.redlock.options) for name, task in app.tasks.items() if hasattr(task, "redlock"))
        if refused := list(refusals(tasks)):
            raise LockNotSupported("", "\n".join(refused))
