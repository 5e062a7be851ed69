"""``@single_instance_task`` allows at most one call of a task of ``django.tasks`` at a time. It stands above ``@task``.

It serves Django's own ``django.tasks`` and the package django-tasks, and imports neither. `django_redlock.celery` has
the decorator for Celery tasks.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..signals import task_duplicate
from ..single_instance.conflicts import Conflict, is_duplicate
from ..single_instance.options import TaskOptions, takes
from .framework import is_task
from .options import CELERY_ONLY, checked
from .task import protect

__all__ = ["Conflict", "is_duplicate", "single_instance_task", "task_duplicate"]


@takes(TaskOptions, *CELERY_ONLY)
def single_instance_task(task: Any = None, /, **given: Any) -> Any:
    """Allow at most one call of a task of ``django.tasks`` at a time. Its place is above ``@task``.

    ``mode`` is "until_executed" or "while_executing", and ``on_conflict`` is "skip", "log", "raise", "wait" (only at
    start), a callable, or a pair. Options, times in seconds:

    {options}

    Raises ``TypeError`` and ``ValueError`` for invalid options.
    """
    chosen = checked(given)

    def declare(task: Any) -> Any:
        if is_task(task):
            return protect(task, chosen)
        if hasattr(task, "apply_async"):
            raise TypeError("a Celery task takes django_redlock.celery.single_instance_task, below @shared_task")
        if inspect.isroutine(task):
            raise TypeError(
                "single_instance_task must stand above the decorator that makes the task:\n"
                "    @single_instance_task\n    @task\n    def ...\n"
                "(Celery tasks take django_redlock.celery.single_instance_task)"
            )
        raise TypeError(f"single_instance_task takes a task or keyword arguments, not {task!r}")

    return declare if task is None else declare(task)
