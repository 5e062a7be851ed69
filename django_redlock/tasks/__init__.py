"""``@single_instance_task`` allows at most one call of a task of ``django.tasks`` at a time. It stands above ``@task``.

It serves Django's own ``django.tasks`` and the package django-tasks, and imports neither. `django_redlock.celery` has
the decorator for Celery tasks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from ..core.options import unknown_options
from ..core.values import Seconds
from ..signals import task_duplicate
from ..single_instance.conflicts import Conflict, is_duplicate
from .framework import is_task
from .options import Action, TaskMode, checked
from .task import protect

__all__ = ["Conflict", "is_duplicate", "single_instance_task", "task_duplicate"]

T = TypeVar("T")

_OPTIONS = tuple(inspect.signature(checked).parameters)


@overload
def single_instance_task(task: T, /) -> T: ...


@overload
def single_instance_task(
    *,
    mode: TaskMode = ...,
    key: str | Callable[..., str] | None = ...,
    unique_on: str | Sequence[str] | None = ...,
    on_conflict: Action | tuple[Action, Action] | None = ...,
    ttl: Seconds | None = ...,
    queue_ttl: Seconds = ...,
    limit: int = ...,
    on_store_error: Literal["raise", "run"] = ...,
    using: str = ...,
    conflict_timeout: Seconds = ...,
) -> Callable[[T], T]: ...


def single_instance_task(
    task: Any = None,
    /,
    *,
    mode: TaskMode = "until_executed",
    key: str | Callable[..., str] | None = None,
    unique_on: str | Sequence[str] | None = None,
    on_conflict: Action | tuple[Action, Action] | None = None,
    ttl: Seconds | None = None,
    queue_ttl: Seconds = 86400,
    limit: int = 1,
    on_store_error: Literal["raise", "run"] = "raise",
    using: str = "default",
    conflict_timeout: Seconds = 10,
    **unknown: Any,
) -> Any:
    """Allow at most one call of a task of ``django.tasks`` at a time. Its place is above ``@task``.

    ``mode``: the period in which a call holds the lock: "until_executed" (``enqueue()`` to the end of the body) or
    "while_executing" (start to end of the body).

    ``key``: the lock's name, either a text with argument names in braces or a callable that gets the arguments.
    ``None``: the task's path with all arguments, or with the arguments in ``unique_on``. ``limit``: the number of calls
    allowed at a time, with "while_executing".

    ``on_conflict``: the action for a duplicate, which is a call refused because of another call: "skip", "log",
    "raise", "wait" (only at the start of the body: wait for up to ``conflict_timeout``, then raise), or a callable that
    gets a `Conflict` and returns "skip", "log" or "raise". A pair gives one action for ``enqueue()`` and one for the
    start of the body.

    ``ttl``: the lease of a running body, which is renewed while the body runs. ``None``: 30 seconds, or the backend's
    ``max_ttl`` if that is less. ``queue_ttl``: time for which a call counts as queued. It begins at ``enqueue()``, or
    at the task's ``run_after`` if that is later. ``on_store_error="run"``: run without a lock when the store is down.
    ``using``: alias of the lock backend. All times are in seconds.

    Raises ``TypeError`` and ``ValueError`` for invalid arguments.
    """
    if unknown:
        raise unknown_options("single_instance_task", unknown, _OPTIONS)
    chosen = checked(
        mode=mode,
        key=key,
        unique_on=unique_on,
        on_conflict=on_conflict,
        ttl=ttl,
        queue_ttl=queue_ttl,
        limit=limit,
        on_store_error=on_store_error,
        using=using,
        conflict_timeout=conflict_timeout,
    )

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
