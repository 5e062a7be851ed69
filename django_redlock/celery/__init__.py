"""``@single_instance_task`` allows at most one call of a Celery task at a time. It stands below ``@shared_task``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, ParamSpec, TypeVar, overload

try:
    from celery import Task
    from celery.local import Proxy
except ModuleNotFoundError as error:
    if error.name != "celery":
        raise
    raise ModuleNotFoundError(
        'django_redlock.celery needs Celery: pip install "django-redlock[celery]"', name=error.name
    ) from error

from ..core.options import unknown_options
from ..core.values import Seconds
from ..signals import task_duplicate
from ..single_instance.call_names import CallNamer
from ..single_instance.conflicts import Conflict, OnConflict, is_duplicate
from ..single_instance.declared_tasks import declared
from ..single_instance.modes import ModeName, options
from . import patching

__all__ = ["Conflict", "is_duplicate", "single_instance_task", "task_duplicate"]

P = ParamSpec("P")
R = TypeVar("R")

TASK_OPTIONS = tuple(inspect.signature(options).parameters)

patching.install()


@overload
def single_instance_task(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def single_instance_task(
    *,
    mode: ModeName = ...,
    key: str | Callable[..., str] | None = ...,
    unique_on: str | Sequence[str] | None = ...,
    on_conflict: OnConflict | tuple[OnConflict, OnConflict] | None = ...,
    ttl: Seconds | None = ...,
    queue_ttl: Seconds = ...,
    limit: int = ...,
    on_store_error: Literal["raise", "run"] = ...,
    using: str = ...,
    conflict_timeout: Seconds = ...,
    conflict_retries: int | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def single_instance_task(
    function: Callable[P, R] | None = None,
    /,
    *,
    mode: ModeName = "until_executed",
    key: str | Callable[..., str] | None = None,
    unique_on: str | Sequence[str] | None = None,
    on_conflict: OnConflict | tuple[OnConflict, OnConflict] | None = None,
    ttl: Seconds | None = None,
    queue_ttl: Seconds = 86400,
    limit: int = 1,
    on_store_error: Literal["raise", "run"] = "raise",
    using: str = "default",
    conflict_timeout: Seconds = 10,
    conflict_retries: int | None = None,
    **unknown: Any,
) -> Any:
    """Allow at most one call of a Celery task at a time. Its place is below ``@shared_task`` or ``@app.task``.

    ``mode``: the period in which a call holds the lock: "until_executed" (submit to end of the body), "until_executing"
    (submit to start), "while_executing" (start to end), "until_and_while_executing" (one call runs and one waits),
    "until_expired" (once in ``ttl``). The names are those of sidekiq-unique-jobs. All times below are in seconds.

    ``key``: the lock's name, either a text with argument names in braces or a callable that gets the arguments.
    ``None``: the task's name with all arguments, or with the arguments in ``unique_on``. ``limit``: the number of calls
    allowed at a time.

    ``on_conflict``: the action for a duplicate, which is a call refused because of another call: "skip", "log",
    "raise", "wait" (up to ``conflict_timeout``), "retry" (in a worker: send the message again after growing pauses),
    "replace" (the queued call), or a callable that gets a `Conflict` and returns one of these actions. A pair gives one
    action for submit and one for start. ``conflict_retries``: the largest number of pauses of "retry"; ``None``: 20, or
    no limit with "until_and_while_executing".

    ``ttl``: the lease of a running body, which is renewed while the body runs. ``None``: 30 seconds, or the backend's
    ``max_ttl`` if that is less. With "until_expired", ``ttl`` is the period (``None``: 30 seconds), and the lease has
    its default length, but at most the period. ``queue_ttl``: the time for which a call counts as queued, counted from
    its ETA. Each retry starts this time anew. ``on_store_error="run"``: run without a lock when the store is down.
    ``using``: alias of the lock backend.

    Raises ``TypeError`` and ``ValueError`` for invalid arguments.
    """
    if unknown:
        raise unknown_options("single_instance_task", unknown, TASK_OPTIONS)
    chosen = options(
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
        conflict_retries=conflict_retries,
    )

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        if issubclass(type(function), Task | Proxy):  # isinstance() would resolve a proxy, which builds the app
            raise TypeError(
                "single_instance_task must stand below the decorator that makes the task:\n"
                "    @shared_task\n    @single_instance_task\n    def ..."
            )
        if hasattr(function, "enqueue"):
            raise TypeError("a task of django.tasks takes django_redlock.tasks.single_instance_task, above @task")
        if not callable(function):
            raise TypeError(f"single_instance_task takes keyword arguments only, not {function!r}")
        CallNamer(function, chosen.key, chosen.unique_on)  # raises now if an argument does not exist
        setattr(function, patching.OPTIONS_ATTRIBUTE, chosen)
        with suppress(TypeError):  # a callable object without weak references
            declared[function] = chosen
        return function

    return declare if function is None else declare(function)
