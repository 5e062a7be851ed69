"""``@locked("report:{report_id}")``: one call at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction

from ..core.locks.lock import Lock
from ..handler import DEFAULT_ALIAS
from ..name_templates import namer
from ..shortcuts import LockKwargs, check_options, lock

P = ParamSpec("P")
R = TypeVar("R")


def locked(
    name: str,
    *,
    using: str = DEFAULT_ALIAS,
    release_on_commit: bool | str = False,
    **options: Unpack[LockKwargs],
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Hold a lock during each call of a function, method or coroutine function.

    ``name`` may have arguments of the call in it, by name: ``"report:{report_id}"``, ``"stock:{self.pk}"``,
    ``"order:{order.pk}"``. ``using`` and ``release_on_commit``: as in ``django_redlock.lock()``; the other options:
    as in the backend's ``lock()``, times in seconds.

    A call raises ``LockNotAcquired`` when the lock is not had in time, ``LockLost`` when it was lost before the
    function returned, ``LockUnavailable`` when the store can't be asked. Raises ``TypeError`` when it decorates what
    it can't protect, or finds no such argument or option.
    """
    if not isinstance(name, str):
        raise TypeError('locked() begins with the name of the lock: @locked("report:{report_id}")')
    check_options("locked", options)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        _check_decorated(function)
        name_of = namer(name, function)

        def lock_for(*args: P.args, **kwargs: P.kwargs) -> Lock:
            return lock(name_of(*args, **kwargs), using, release_on_commit=release_on_commit, **options)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock_for(*args, **kwargs):
                return function(*args, **kwargs)

        @wraps(function)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with lock_for(*args, **kwargs):
                return await cast("Any", function(*args, **kwargs))

        wrapper = cast("Callable[P, R]", acall if iscoroutinefunction(function) else call)
        # Celery's check of arguments does not follow __wrapped__.
        wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _check_decorated(function: Any) -> None:
    """Raise ``TypeError`` for what a lock around the call does not protect."""
    if isinstance(function, type):
        raise TypeError(f"locked() decorates functions and methods, not a class ({function.__qualname__})")
    if isinstance(function, classmethod | staticmethod) or not callable(function):
        raise TypeError(f"locked() stands under @{type(function).__name__}, next to the function itself")
    body = inspect.unwrap(function)  # as under @contextmanager
    name, bodies = getattr(body, "__qualname__", body), (body, type(body).__call__)  # of an object, what a call runs
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in bodies):
        raise TypeError(
            f"{name} is a generator function: its call ends before its body begins, and so would the lock. "
            "Use `with lock(...)` in the body"
        )
    if any(map(iscoroutinefunction, bodies)) and not iscoroutinefunction(function):
        raise TypeError(
            f"{name} is async, but what is decorated is not: its call ends before its body begins, and so would the "
            "lock. Put locked() next to the `async def`, or use `async with lock(...)` in the body"
        )
