"""``@single_instance_task`` allows at most one call of a ``django.tasks`` task at a time, and stands above ``@task``.

The decorator works with Django's own ``django.tasks`` and with the package django-tasks. `django_redlock.celery` has
the decorator for Celery tasks.
"""

from __future__ import annotations

import inspect
from typing import Any

from ..signals import task_duplicate
from ..single_instance.call import Conflict, is_duplicate
from ..single_instance.options import OPTIONS, TaskOptions, checked_options, takes
from .framework import is_task
from .task import protect

__all__ = ["Conflict", "is_duplicate", "single_instance_task", "task_duplicate"]


_CELERY_ONLY = ("conflict_retries",)
_KNOWN = tuple(name for name in OPTIONS if name not in _CELERY_ONLY)


@takes(TaskOptions, *_CELERY_ONLY)
def single_instance_task(task: Any = None, /, **given: Any) -> Any:
    """Allow at most one call of a task of ``django.tasks`` at a time. The decorator stands above ``@task``.

    ::

        @single_instance_task(unique_on=["order_id"])
        @task
        def settle(order_id, note=""): ...

    ``mode`` is "until_executed" or "while_executing", and ``on_conflict`` is "skip", "log", "raise", "wait" (only at
    start), a callable, or a pair. Options, times in seconds:

    {options}

    Raises ``TypeError`` and ``ValueError`` for invalid options.
    """
    chosen = _checked(given)

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


def _checked(given: dict[str, Any]) -> TaskOptions:
    """Return `checked_options`. Raises ``ValueError`` also for values that only Celery tasks support."""
    chosen = checked_options(given, _KNOWN)
    only_celery = "is for Celery tasks only; with django.tasks"
    mode, on_conflict = chosen.mode, chosen.on_conflict
    if mode not in ("until_executed", "while_executing"):
        raise ValueError(f"mode={mode!r} {only_celery}, use 'until_executed' or 'while_executing'")
    words = on_conflict if isinstance(on_conflict, tuple) else (on_conflict,)
    if any(word in ("retry", "replace") for word in words):
        raise ValueError(f"on_conflict={on_conflict!r} {only_celery}, use 'skip', 'log', 'raise' or a callable")
    if chosen.states.at_submit and chosen.actions[0] == "wait":
        raise ValueError("on_conflict='wait' would block enqueue(): use a pair, such as on_conflict=('skip', 'wait')")
    if chosen.states.at_submit and chosen.limit != 1:
        raise ValueError(
            f"mode={mode!r} with limit={chosen.limit} {only_celery}, use limit=1 or mode='while_executing'"
        )
    return chosen
