"""``get_or_compute(cache, key, compute, timeout)`` protects a cache against stampedes.

One caller computes a missing value under a lock. All other callers, in all processes, wait for that value.
"""

from __future__ import annotations

import inspect
import math
import random
import time
from asyncio import shield, wait_for, wrap_future
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

from django.core.cache import BaseCache, caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.exceptions import ImproperlyConfigured

from .backend_registry import DEFAULT_ALIAS, locks
from .core.events import logger
from .core.flow.drivers import adrive, drive
from .core.flow.steps import Step, StepOutcome
from .core.keys import shorten_name
from .core.locks.read_write import RWLock
from .core.options import wait_seconds
from .core.process.caller import calling, check_may_block
from .core.process.fork import on_fork
from .core.values import Seconds, seconds
from .errors import LockDeadlock, LockError, LockNotAcquired, LockUnavailable

T = TypeVar("T")
LOCK_TTL = 5.0  # seconds
_MISSING: Any = object()
_CACHE_DEFAULT: Any = DEFAULT_TIMEOUT


def get_or_compute(
    cache: BaseCache,
    key: str,
    compute: Callable[[], T],
    timeout: Seconds | None = _CACHE_DEFAULT,
    *,
    stale: Seconds = 0,
    early: float = 0.0,
    using: str = DEFAULT_ALIAS,
    blocking_timeout: Seconds | None = None,
    ttl: Seconds = LOCK_TTL,
) -> T:
    """Return the cached value of ``key``. If the value is missing, one caller computes it and all other callers wait.

    ``timeout``: seconds until the value expires, rounded up. The default is the cache's; ``None`` means never. If the
    cache's is 0, nothing is stored.
    ``stale``: seconds after the expiry in which callers get the old value at once, while one caller computes the new
    value.
    ``early``: above 0, a caller may compute the new value before the old value expires, with a probability that grows
    towards the expiry; the other callers get the old value meanwhile. 1.0 suits most values, a larger number means
    earlier (XFetch: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", 2015).
    ``blocking_timeout``: seconds to wait for the computation of another caller; ``None`` means no limit.
    ``using``: the alias of the lock backend.
    ``ttl``: seconds of the lock's lease, which is renewed while the computation runs. If the computing process is
    killed, the waiters wait until the lease has expired.

    An exception of ``compute`` is raised to the caller that computes; a waiting caller computes next. Raises
    ``LockNotAcquired`` after ``blocking_timeout``, ``LockUnavailable`` when the lock store doesn't reply and there is
    no old value, ``LockDeadlock`` when ``compute`` asks for the same key again, ``ValueError`` and ``TypeError`` for
    bad arguments.
    """
    if inspect.iscoroutinefunction(compute):
        raise TypeError("get_or_compute() takes a plain function; for a coroutine function use aget_or_compute()")
    entry = _Entry.new(cache, key, timeout, stale, early)
    flow: _Flow[T] = _flow(entry, compute, _lock(entry, using, ttl), _wait(blocking_timeout))
    return drive(flow, Step.perform)


async def aget_or_compute(
    cache: BaseCache,
    key: str,
    compute: Callable[[], Awaitable[T] | T],
    timeout: Seconds | None = _CACHE_DEFAULT,  # noqa: ASYNC109  (until the cached value expires)
    *,
    stale: Seconds = 0,
    early: float = 0.0,
    using: str = DEFAULT_ALIAS,
    blocking_timeout: Seconds | None = None,
    ttl: Seconds = LOCK_TTL,
) -> T:
    """`get_or_compute` for asyncio. ``compute`` is a coroutine function, or a plain function that doesn't block."""
    entry = _Entry.new(cache, key, timeout, stale, early)
    flow: _Flow[T] = _flow(entry, compute, _lock(entry, using, ttl), _wait(blocking_timeout))
    return await adrive(flow, Step.aperform)


_Flow = Generator[Step, StepOutcome, T]


def _ask(target: Any, method: str, *args: Any) -> _Flow[Any]:
    """Call ``target.method(*args)``, or under asyncio ``target.a<method>(*args)``. Return its result, raise its error.

    ``target`` is a cache, a lock or a `_Flight`.
    """
    step = Step(lambda: getattr(target, method)(*args), lambda: getattr(target, f"a{method}")(*args))
    return (yield step).unwrap()


class _Found(NamedTuple):
    """The result of a look into the cache: ``value`` is the cached value or `_MISSING`.

    ``fresh`` is false if a caller should compute a new value.
    """

    value: Any
    fresh: bool


class _Entry(NamedTuple):
    """A key of the cache, and the options of its value: ``timeout`` and ``stale`` in seconds, the factor ``early``.

    A ``timeout`` of ``None`` means that the value never expires, and 0 that nothing is stored. With ``stale``, a second
    key has a copy that expires later. With ``early``, a third key has the time of the expiry. ``lot``: an exponentially
    distributed random number, with which XFetch decides. It is drawn once for a caller, so that the second look, under
    the lock, decides the same.
    """

    cache: BaseCache
    key: str
    timeout: int | None
    stale: int
    early: float
    lot: float

    @classmethod
    def new(cls, cache: BaseCache, key: str, timeout: Seconds | None, stale: Seconds, early: float) -> _Entry:
        if timeout is not None and timeout is not _CACHE_DEFAULT:
            timeout = seconds(timeout, "timeout")
        given = cache.default_timeout if timeout is _CACHE_DEFAULT else timeout
        kept = None if given is None else math.ceil(given)
        more = stale.total_seconds() if isinstance(stale, timedelta) else stale
        if not (math.isfinite(more) and more >= 0):
            raise ValueError(f"stale must be a number of seconds, not {stale!r}")
        if not (math.isfinite(early) and early >= 0):
            raise ValueError(f"early must be 0 or a positive number, not {early!r}")
        if kept is None and (more or early):
            raise ValueError("stale= and early= need a timeout: a value without one never expires")
        return cls(cache, key, kept, math.ceil(more), early, random.expovariate(1.0))

    def look_up(self) -> _Flow[_Found]:
        """Return the value in the cache or, after its expiry, the stale copy. Without both: `_MISSING`."""
        stale_key, expiry_key = self._keys()
        if self.early:
            both = yield from _ask(self.cache, "get_many", (self.key, expiry_key))
            value = both.get(self.key, _MISSING)
            fresh = not self._expires_soon(both.get(expiry_key))
        else:
            value, fresh = (yield from _ask(self.cache, "get", self.key, _MISSING)), True
        if value is not _MISSING:
            return _Found(value, fresh)
        if self.stale:
            value = yield from _ask(self.cache, "get", stale_key, _MISSING)
        return _Found(value, fresh=False)

    def fill(self, compute: Callable[[], Any]) -> _Flow[Any]:
        """Compute the value, store it in the cache and return it."""
        start = time.monotonic()
        value = (yield Step(compute, compute)).unwrap()
        took = time.monotonic() - start
        stale_key, expiry_key = self._keys()
        if self.timeout and self.stale:
            yield from _ask(self.cache, "set", stale_key, value, self.timeout + self.stale)
        if self.timeout and self.early:
            yield from _ask(self.cache, "set", expiry_key, (time.time() + self.timeout, took), self.timeout)
        yield from _ask(self.cache, "set", self.key, value, self.timeout)
        return value

    def _keys(self) -> tuple[str, str]:
        return f"{self.key}:stale", f"{self.key}:expiry"

    def _expires_soon(self, expiry: tuple[float, float] | None) -> bool:
        """Return whether this caller computes a new value before the old value expires (XFetch).

        Returns ``True`` for more callers towards the expiry. ``expiry``: a pair of the Unix time of the expiry and the
        seconds that the last computation took. Returns ``False`` if ``expiry`` is ``None`` (unknown).
        """
        if expiry is None:
            return False
        expires_at, took = expiry
        return time.time() + took * self.early * self.lot >= expires_at


class _Flight:
    """A missing value that one caller computes or fetches while other callers of the process wait (single flight).

    ``unavailable``: the error of the caller's request to the lock store; ``None`` if there is none.
    """

    def __init__(self) -> None:
        self.caller = calling()
        self.unavailable: LockUnavailable | None = None
        self._value: Future[Any] = Future()

    def land(self, value: Any) -> None:
        self._value.set_result(value)

    def join(self, seconds: float | None) -> Any:
        """Wait up to ``seconds`` (``None``: no limit) for the value, and return it.

        Returns `_MISSING` after a timeout, or if the caller that computes or fetches the value has failed. Raises
        ``RuntimeError`` in a coroutine, whose event loop may have to run the computation.
        """
        check_may_block("get_or_compute()", "aget_or_compute()")
        with suppress(TimeoutError):
            return self._value.result(seconds)
        return _MISSING

    async def ajoin(self, seconds: float | None) -> Any:
        with suppress(TimeoutError):
            return await wait_for(shield(wrap_future(self._value)), seconds)
        return _MISSING


_flights: dict[tuple[Any, str], _Flight] = {}  # by cache and name of the lock
on_fork(_flights.clear)  # the computing threads exist in the parent only


def _flow(entry: _Entry, compute: Callable[[], Any], lock: RWLock, wait: float) -> _Flow[Any]:
    """Return the cached or computed value of ``entry``: the algorithm of `get_or_compute`.

    In each process one caller at a time asks the lock store. The other callers of the process wait for the value of
    that caller. If the lock store does not reply to that caller, they all raise ``LockUnavailable``, because they would
    otherwise ask and wait one after the other. ``wait``: seconds to wait for the computation of another caller.
    """
    deadline = time.monotonic() + wait
    while True:
        found = yield from entry.look_up()
        if found.fresh:
            return found.value
        if found.value is not _MISSING:
            return (yield from _compute_once(entry, compute, lock, found.value, deadline))
        mine, key = _Flight(), (_cache_id(entry.cache), lock.name)
        flight = _flights.setdefault(key, mine)
        if flight is mine:
            value = _MISSING
            try:
                value = yield from _compute_once(entry, compute, lock, _MISSING, deadline)
                return value
            except LockUnavailable as error:
                if error.name == lock.name:  # else it is an error of `compute`
                    mine.unavailable = copy(error)  # the copy has no traceback, which would refer to this frame
                raise
            finally:
                _flights.pop(key, None)  # if `compute` forked, the flight is missing in the child process
                mine.land(value)
        if flight.caller == mine.caller:
            raise LockDeadlock(lock.name)
        left = deadline - time.monotonic()
        value = yield from _ask(flight, "join", None if left == math.inf else max(left, 0.0))
        if value is not _MISSING:
            return value
        if flight.unavailable:
            found = yield from entry.look_up()  # another process may have stored the value meanwhile
            if found.value is _MISSING:
                raise copy(flight.unavailable)
            return found.value
        if left <= 0:
            raise LockNotAcquired(lock.name, "another caller still computes the value")


def _cache_id(cache: BaseCache) -> Any:
    """Return the alias of the cache, because each thread has its own object of a cache. Without an alias: its id."""
    for alias in caches:
        with suppress(ImproperlyConfigured):  # another cache, which can't be created
            if caches[alias] == cache:
                return alias
    return id(cache)


def _compute_once(entry: _Entry, compute: Callable[[], Any], lock: RWLock, old: Any, deadline: float) -> _Flow[Any]:
    """Compute, store and return the value under the write lock, unless another caller computes it already.

    In that case, returns ``old``, the stale value. If ``old`` is `_MISSING`, waits for the read lock until ``deadline``
    (monotonic seconds) and returns the other caller's value, because the release of the write lock wakes all readers at
    once. Raises ``LockNotAcquired`` after ``deadline``.
    """
    while True:
        try:
            if (yield from _ask(lock.write, "acquire", False)):
                break
        except LockUnavailable:
            if old is _MISSING:
                raise
        if old is not _MISSING:
            return old
        left = deadline - time.monotonic()
        if left <= 0 or not (yield from _ask(lock.read, "acquire", True, -1 if left == math.inf else left)):
            raise LockNotAcquired(lock.name, "another caller still computes the value")
        yield from _release(lock.read)
        found = yield from entry.look_up()
        if found.value is not _MISSING:
            return found.value
    interrupted = False
    try:
        found = yield from entry.look_up()  # another caller may have computed the value meanwhile
        return found.value if found.fresh else (yield from entry.fill(compute))
    except GeneratorExit:  # the driver was interrupted and makes no more calls: the lease runs out
        interrupted = True
        raise
    finally:
        if not interrupted:
            yield from _release(lock.write)


def _release(lock: Any) -> _Flow[None]:
    """Release ``lock``. Errors are only logged: after a lost lease the value is computed twice, which is harmless."""
    try:
        yield from _ask(lock, "release")
    except LockError as error:
        logger.warning("%s", error)


def _lock(entry: _Entry, using: str, ttl: Seconds) -> RWLock:
    return locks[using].rwlock(shorten_name(f"cache:{entry.cache.make_key(entry.key)}"), ttl=ttl)


def _wait(blocking_timeout: Seconds | None) -> float:
    return wait_seconds(True, -1 if blocking_timeout is None else blocking_timeout)
