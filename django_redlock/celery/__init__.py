"""Celery tasks of which there is one at a time: ``@single_instance_task``, below ``@shared_task`` or ``@app.task``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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
from . import patching
from .call_names import CallNamer
from .conflicts import Conflict, OnConflict, is_duplicate
from .modes import ModeName, options

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
    """Declare a function, below ``@shared_task`` or ``@app.task``, as a task of which there is one at a time.

    ``mode``: from when to when: "until_executed" (submit to end of the body), "until_executing" (submit to start),
    "while_executing" (start to end), "until_and_while_executing" (one running and one waiting), "until_expired" (once
    in ``ttl``). ``key``: what tells calls apart, a text with argument names in braces or a callable that gets the
    arguments; by default the task's name with all arguments, or with those in ``unique_on``. ``limit``: so many
    instead of one.

    ``on_conflict``: what becomes of a duplicate: "skip", "log", "raise", "wait" (``conflict_timeout`` at most),
    "retry" (in the worker: sent again, ``conflict_retries`` times at most), "replace" (the queued one gives way), or a
    callable that gets a `Conflict` and answers one of these; a pair gives one for submit and one for start.

    ``ttl``: the lease of a running body, renewed while it runs: by default 30, or the backend's ``max_ttl`` where that
    is less. ``queue_ttl``: how long a queued task counts, from its ETA and again from each retry.
    ``on_store_error="run"``: run unprotected when the lock store is down. ``using``: the alias of the lock backend.
    Times are seconds. Source of the modes' names: sidekiq-unique-jobs.

    Raises ``TypeError`` and ``ValueError``, when the task is declared, for what makes no sense.
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
        if issubclass(type(function), Task | Proxy):  # isinstance would resolve a proxy, and so build the app
            raise TypeError(
                "single_instance_task stands below the decorator that makes the task:\n"
                "    @shared_task\n    @single_instance_task\n    def ..."
            )
        if not callable(function):
            raise TypeError(f"single_instance_task takes keyword arguments only, not {function!r}")
        CallNamer(function, chosen.key, chosen.unique_on)  # says now which argument does not exist
        setattr(function, patching.OPTIONS_ATTRIBUTE, chosen)
        return function

    return declare if function is None else declare(function)
