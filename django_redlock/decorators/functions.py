"""``@locked("report:{report_id}")`` runs a function under a lock, one call at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from asgiref.sync import iscoroutinefunction

from ..backend_registry import DEFAULT_ALIAS
from ..core.locks.lock import Lock
from ..core.options import LockKwargs, check_options
from ..core.values import seconds
from ..name_templates import namer
from ..shortcuts import lock

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

    ::

        @locked("report:{report_id}", blocking_timeout=5)
        def rebuild(report_id): ...

    - ``name``: may contain arguments of the call: ``"report:{report_id}"``, ``"stock:{self.pk}"``.
    - ``using`` ("default"): alias of the lock backend.
    - ``release_on_commit`` (``False``): ``True`` or the alias of a database: hold the lock until its transaction ends.
    - other options: those of the backend's ``lock()``; times are seconds or a ``timedelta``. With
      ``every=timedelta(hours=23)`` the function starts at most once in that time.

    A call raises ``LockNotAcquired`` when the lock is not acquired in time, ``LockLost`` when the lock was lost before
    the function returned, ``LockUnavailable`` when the store does not reply. The decorator raises ``TypeError`` for an
    object that it can't protect, such as a class or a generator function, and for an unknown argument or option.
    """
    if not isinstance(name, str):
        raise TypeError('the first argument of locked() is the name of the lock: @locked("report:{report_id}")')
    check_options("locked", options)
    if (every := options.get("every")) is not None:
        seconds(every, "every")

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
        # Celery's check of arguments reads __signature__, but not __wrapped__.
        wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _check_decorated(function: Any) -> None:
    """Raise ``TypeError`` for a class or a generator function, because its body does not run during the call."""
    if isinstance(function, type):
        raise TypeError(f"locked() decorates functions and methods, not a class ({function.__qualname__})")
    if isinstance(function, staticmethod) or (hasattr(function, "__get__") and not callable(function)):
        raise TypeError(f"put locked() below @{type(function).__name__}, directly above the function")
    if not callable(function):
        raise TypeError(f"locked() decorates functions and methods, not {function!r:.100}")
    body = inspect.unwrap(function)  # for example the generator function under @contextmanager
    name, bodies = getattr(body, "__qualname__", body), (body, type(body).__call__)  # a callable object runs __call__
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in bodies):
        raise TypeError(
            f"{name} is a generator function: its call ends before its body begins, and so would the lock. "
            "Use `with lock(...)` in the body"
        )
    if any(map(iscoroutinefunction, bodies)) and not iscoroutinefunction(function):
        raise TypeError(
            f"{name} is async, but the decorated object is not: its call ends before its body begins, and so would the "
            "lock. Put locked() next to the `async def`, or use `async with lock(...)` in the body"
        )
