"""``get_or_compute(cache, key, compute, timeout)`` protects a cache against stampedes.

One caller computes a missing value under a lock. All other callers, in all processes, wait for that value.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from copy import copy
from typing import Any, NamedTuple, TypeVar

from django.core.cache import BaseCache, caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from .backend_registry import DEFAULT_ALIAS, locks
from .call_styles import Awaiting, Blocking, complete
from .core.events import logger
from .core.keys import shorten_name
from .core.options import wait_seconds
from .core.process.clock import monotonic
from .core.values import Seconds, seconds
from .errors import LockDeadlock, LockError, LockNotAcquired, LockUnavailable

T = TypeVar("T")
LOCK_TTL = 5.0  # seconds
_MISSING: Any = object()
_ID = "_redlock_id"  # the attribute of a cache that holds its `_cache_id`
_CACHE_DEFAULT: Any = DEFAULT_TIMEOUT


def get_or_compute(
    cache: BaseCache,
    key: str,
    compute: Callable[[], T],
    timeout: Seconds | None = _CACHE_DEFAULT,
    *,
    stale: Seconds = 0,
    using: str = DEFAULT_ALIAS,
    blocking_timeout: Seconds | None = None,
    ttl: Seconds = LOCK_TTL,
) -> T:
    """Return the cached value of ``key``. If the value is missing, one caller computes it and all other callers wait.

    ::

        get_or_compute(cache, "front-page", render_front_page, timeout=60)

    Times are seconds or a ``timedelta``.

    - ``timeout``: time until the value expires, rounded up; ``None`` means never. The default is the cache's TIMEOUT; 0
      stores nothing.
    - ``stale`` (0): time after the expiry in which callers get the old value at once, while one caller computes.
    - ``using`` ("default"): the alias of the lock backend.
    - ``blocking_timeout`` (``None``): time to wait for the computation of another caller; ``None`` means no limit.
    - ``ttl`` (5): lease of the lock, renewed while the computation runs. If the computing process is killed, the
      waiters wait until the lease has expired.

    An exception of ``compute`` is raised in the computing caller; then a waiting caller computes. Raises
    ``LockNotAcquired`` after ``blocking_timeout``; ``LockUnavailable`` when the lock store doesn't reply and there is
    no old value; ``LockDeadlock`` when ``compute``, or a task started by it, requests the same key; ``ValueError`` and
    ``TypeError`` for bad arguments.
    """
    if inspect.iscoroutinefunction(compute):
        raise TypeError("get_or_compute() takes a plain function; for a coroutine function use aget_or_compute()")
    entry = _Entry.new(cache, key, timeout, stale, using, ttl)
    value: T = complete(_value(Blocking(), entry, compute, blocking_timeout))
    return value


async def aget_or_compute(
    cache: BaseCache,
    key: str,
    compute: Callable[[], Awaitable[T] | T],
    timeout: Seconds | None = _CACHE_DEFAULT,  # noqa: ASYNC109  (until the cached value expires)
    *,
    stale: Seconds = 0,
    using: str = DEFAULT_ALIAS,
    blocking_timeout: Seconds | None = None,
    ttl: Seconds = LOCK_TTL,
) -> T:
    """`get_or_compute` for asyncio. ``compute`` is a coroutine function, or a plain function that doesn't block."""
    entry = _Entry.new(cache, key, timeout, stale, using, ttl)
    value: T = await _value(Awaiting(), entry, compute, blocking_timeout)
    return value


class _Entry(NamedTuple):
    """A key of the cache, and the options of its value."""

    cache: BaseCache
    key: str
    timeout: int | None  # seconds; None: the value never expires, 0: nothing is stored
    stale: int  # seconds for which a second key has a copy after the timeout
    using: str
    ttl: Seconds

    @classmethod
    def new(
        cls, cache: BaseCache, key: str, timeout: Seconds | None, stale: Seconds, using: str, ttl: Seconds
    ) -> _Entry:
        if timeout is _CACHE_DEFAULT:
            timeout = cache.default_timeout
        elif timeout is not None:
            timeout = seconds(timeout, "timeout")
        kept = None if timeout is None else math.ceil(timeout)
        more = seconds(stale, "stale") if stale else 0.0
        if kept is None and more:
            raise ValueError("stale= needs a timeout: a value without one never expires")
        return cls(cache, key, kept, math.ceil(more), using, ttl)

    @property
    def lock_name(self) -> str:
        return shorten_name(f"cache:{self.cache.make_key(self.key)}")

    async def look_up(self, style: Blocking) -> tuple[Any, bool]:
        """Return the cached value and whether it is fresh. After expiry, the value is the stale copy or `_MISSING`."""
        value = await style.method(self.cache, "get", self.key, _MISSING)
        if value is not _MISSING or not self.stale:
            return value, value is not _MISSING
        return await style.method(self.cache, "get", f"{self.key}:stale", _MISSING), False

    async def fill(self, style: Blocking, compute: Callable[[], Any]) -> Any:
        value = await style.call(compute)
        if self.timeout and self.stale:
            await style.method(self.cache, "set", f"{self.key}:stale", value, self.timeout + self.stale)
        await style.method(self.cache, "set", self.key, value, self.timeout)
        return value


# Missing values that one caller computes or fetches while others of the process wait (single flight). The result is the
# value, or `_MISSING` if that caller has failed; the exception is that of its request to the lock store.
# By process (a child of a fork lacks the computing threads), cache and name of the lock.
_flights: dict[tuple[int, Any, str], Future[Any]] = {}
# The flights of which this code is a part: a child task, or a thread of asyncio.to_thread, has its parent's context.
_inside: ContextVar[tuple[Future[Any], ...]] = ContextVar("redlock_computations", default=())


async def _value(style: Blocking, entry: _Entry, compute: Callable[[], Any], wait: Seconds | None) -> Any:
    """Return the cached or computed value of ``entry``: the algorithm of `get_or_compute`.

    In each process one caller at a time acquires the lock, and the other callers wait for its value. If the lock store
    does not reply, all these callers raise ``LockUnavailable`` at once instead of waiting one after the other.
    ``wait``: seconds to wait for the computation of another caller.
    """
    deadline = monotonic() + wait_seconds(True, -1 if wait is None else wait)
    while True:
        value, fresh = await entry.look_up(style)
        if fresh:
            return value
        if value is not _MISSING:
            return await _compute_once(style, entry, compute, value, deadline)
        outer, name = _inside.get(), entry.lock_name
        key = (os.getpid(), _cache_id(entry.cache), name)
        mine: Future[Any] = Future()
        flight = _flights.setdefault(key, mine)
        if flight is mine:
            _inside.set((*outer, mine))
            try:
                value = await _compute_once(style, entry, compute, _MISSING, deadline)
                return value
            except LockUnavailable as error:
                if error.name == name:  # else it is an error of `compute`
                    mine.set_exception(copy(error))  # the copy has no traceback, which would refer to this frame
                raise
            finally:
                _inside.set(outer)
                _flights.pop(key, None)
                if not mine.done():
                    mine.set_result(value)
        if flight in outer:
            raise LockDeadlock(name)
        left = deadline - monotonic()
        try:
            value = await style.result(flight, None if left == math.inf else max(left, 0.0), "aget_or_compute()")
        except TimeoutError:
            raise LockNotAcquired(name, "another caller still computes the value") from None
        except LockUnavailable as error:
            raise copy(error) from None
        if value is not _MISSING:
            return value


def _cache_id(cache: Any) -> Any:
    """Return the alias of ``cache`` in CACHES, which is the same in all threads; without an alias, the object's id.

    Each thread has its own object for an alias. The alias is stored on the object, so that it can be passed to other
    threads. Only aliases of the same class are compared, because ``caches[alias]`` creates missing objects.
    """
    if (known := getattr(cache, _ID, None)) is None:
        kind = f".{type(cache.make_key.__self__).__name__}"  # `cache` may be Django's proxy
        same = (alias for alias in caches if caches.settings[alias].get("BACKEND", "").endswith(kind))
        known = next((alias for alias in same if caches[alias] == cache), id(cache))
        setattr(cache, _ID, known)
    return known


async def _compute_once(style: Blocking, entry: _Entry, compute: Callable[[], Any], old: Any, deadline: float) -> Any:
    """Compute, store and return the value under the write lock, unless another caller already computes it.

    In that case, return ``old``, the stale value. If ``old`` is `_MISSING`, wait for the read lock until ``deadline``
    (monotonic seconds) and return the other caller's value: the release of the write lock wakes all readers at once.
    Raises ``LockNotAcquired`` after ``deadline``.
    """
    lock = locks[entry.using].rwlock(entry.lock_name, ttl=entry.ttl)
    while True:
        try:
            if await style.method(lock.write, "acquire", False):
                break
        except LockUnavailable:
            if old is _MISSING:
                raise
        if old is not _MISSING:
            return old
        left = deadline - monotonic()
        if left <= 0 or not await style.method(lock.read, "acquire", True, -1 if left == math.inf else left):
            raise LockNotAcquired(lock.name, "another caller still computes the value")
        await _release(style, lock.read)
        value, _ = await entry.look_up(style)
        if value is not _MISSING:
            return value
    try:
        value, fresh = await entry.look_up(style)  # another caller may have computed the value meanwhile
        return value if fresh else await entry.fill(style, compute)
    finally:
        await _release(style, lock.write)


async def _release(style: Blocking, lock: Any) -> None:
    """Release ``lock``. Errors are only logged: if the lease was lost, the value may be computed twice."""
    try:
        await style.method(lock, "release")
    except LockError as error:
        logger.warning("%s", error)
