"""The base of backends for a store that is not Redis.

A subclass defines three methods, and inherits waiting, renewal and asyncio:

    class MyBackend(StorageBackend):
        def acquire_once(self, claim): ...  # returns a Lease, or a Refusal if the lock is held; never waits
        def extend(self, lease, ttl): ...  # returns the extended Lease, or None if the lease is lost
        def release(self, claim, keep): ...  # returns whether the claim still held the lock

``describe``, ``names`` (of held locks), ``force_release`` and ``subscribe`` (wake-ups) are optional. A method
raises ``LockUnavailable`` if the store is unavailable.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ..core.background.work import background
from ..core.flow.replies import fault_error
from ..core.flow.requests import AwaitEvent, Batch, CallFunction, EvalScript, Fault, Flow, FlowRequest, Sleep
from ..core.keys import Keys, glob_matcher
from ..core.lock_info import Listing, LockInfo, by_trouble
from ..core.primitives.base import MAX_BLOCK, Primitive
from ..core.process.caller import WakeEvent
from ..core.process.fork import on_fork
from ..core.values import Claim, Lease, OnRefusal, Refusal
from ..errors import LockError, LockNotSupported
from .base import Backend

T = TypeVar("T")
THREADS = 32  # the maximum number of threads of one backend, the same as in asyncio's default executor
POLL_SECONDS = 0.05, 0.2  # pause between two tries if the store has no wake-ups, drawn at random


def call_storage(name: str, function: Callable[..., T], *args: Any, undo: Callable[[], Any] | None = None) -> Flow[T]:
    """A flow (see `core.flow`) that calls ``function`` of the store. Returns its result, or raises its `LockError`.

    ``name``: the lock, which the error names. ``undo`` is called after ``function`` if the task that waits for the
    result was cancelled.
    """
    reply = yield CallFunction(function, args, undo)
    if isinstance(reply, Fault):
        raise fault_error(name, reply)
    result: T = reply
    return result


def _called(request: CallFunction) -> Any:
    try:
        return request.function(*request.args)
    except LockError as error:
        return Fault(error)


class StorageAlgorithm:
    """The rule by which a store that is not Redis grants locks. It calls the methods of a `StorageBackend`."""

    acquire_free = hand_over = None

    def __init__(self, backend: StorageBackend) -> None:
        self._backend = backend

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        backend = self._backend
        abandon = partial(backend.abandon, primitive, claim)
        try:
            while True:
                asked, woken = backend.clock(), WakeEvent()
                outcome = yield from call_storage(
                    claim.name, backend.attempt, primitive, claim, asked, deadline, woken.set, undo=abandon
                )
                if isinstance(outcome, Lease) or asked >= deadline:
                    return outcome
                left = deadline - backend.clock()
                yield from self._wait(claim, woken, min(left, outcome.remaining + 0.001))
        except BaseException:  # the store may have granted the claim, or lists it as a waiter
            abandon()
            raise

    def _wait(self, claim: Claim, woken: WakeEvent, seconds: float) -> Flow[None]:
        """Wait until another attempt to acquire for ``claim`` may succeed, for at most ``seconds``."""
        backend = self._backend
        if backend.max_wait is not None:
            yield AwaitEvent(woken, min(seconds, backend.max_wait))
            return
        cancel = backend.subscribe(claim, woken.set)
        try:
            yield AwaitEvent(woken, min(seconds, MAX_BLOCK if cancel else random.uniform(*POLL_SECONDS)))
        finally:
            if cancel:
                cancel()

    def extend(self, lease: Lease, ttl: float) -> Flow[Lease | Fault | None]:
        outcome: Lease | Fault | None = yield CallFunction(self._backend.extend, (lease, ttl))
        return outcome

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[Sequence[Lease | Fault | None]]:
        return call_storage("", self._backend.extend_many, leases)

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        return call_storage(claim.name, self._backend.release, claim, keep)

    cancel = release

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        return call_storage(name, self._backend.describe_once, name)


class StorageBackend(Backend):
    """Base class of a backend for a store that is not Redis. Options as for `Backend`.

    A subclass defines blocking methods. With ``does_io``, which is true by default, asyncio code calls these methods in
    a thread.
    """

    does_io = True
    max_wait: float | None = None  # seconds between two attempts of a waiter whom `attempt` wakes; None: it wakes none

    def __init__(self, location: Any = "", **options: Any) -> None:
        super().__init__(location, **options)
        self.algorithm = StorageAlgorithm(self)
        self._threads: ThreadPoolExecutor | None = None
        on_fork(self._begin_anew)

    def __init_subclass__(cls, **options: Any) -> None:
        """Rename ``describe`` and ``force_release`` of a subclass to ``describe_once`` and ``force_release_once``.

        `Backend` has public methods of these two names, which call the renamed methods and emit events.
        """
        super().__init_subclass__(**options)
        for name in ("describe", "force_release"):
            if (operation := vars(cls).get(name)) is not None:
                setattr(cls, f"{name}_once", operation)
                delattr(cls, name)

    def acquire_once(self, claim: Claim) -> Lease | Refusal:
        """Try once to acquire the lock, without waiting. Returns a lease, or a refusal if the lock is held.

        A claim whose token already holds the lock is granted again.
        """
        raise NotImplementedError

    def attempt(
        self, primitive: Primitive, claim: Claim, asked: float, deadline: float, wake: Callable[[], Any]
    ) -> Lease | Refusal:
        """Try once to acquire a lock of the kind ``primitive``. Returns a lease or a refusal.

        The default calls `acquire_once`. A store with more kinds of locks, or with a queue of waiters, overrides this
        method. If `max_wait` is set, the method queues a refused claim, and calls ``wake`` when another attempt may
        succeed. An attempt with ``asked`` >= ``deadline`` (seconds of the clock) is the last one and ends the wait.
        """
        return self.acquire_once(claim)

    def abandon(self, primitive: Primitive, claim: Claim) -> None:
        """Release ``claim``, whose caller was interrupted, and end its wait. Must not block."""
        background.release_later(self, primitive, claim)

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        """Extend ``lease`` to ``ttl`` seconds from now, and return the new lease; ``None`` if the lease is lost."""
        raise NotImplementedError

    def extend_many(self, leases: Sequence[tuple[Lease, float]]) -> Sequence[Lease | Fault | None]:
        """Extend each lease to its ttl, for the renewal. The outcome of a failed extension is a `Fault`.

        Unlike `extend`, must not wait for a connection, because other leases may end meanwhile.
        """
        return [_called(CallFunction(self.extend, each)) for each in leases]

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        """Release the lock. It can't be acquired for ``keep`` more seconds. Returns whether the claim still held it.

        Returns at once, without waiting for ``keep``.
        """
        raise NotImplementedError

    def describe_once(self, name: str) -> LockInfo | None:
        """Return the holder of the lock ``name`` and other facts; ``None`` if the lock is free."""
        raise LockNotSupported(name, f"{type(self).__name__} can't tell who holds a lock")

    def names(self) -> Iterable[str]:
        """Return the names of the locks that are held."""
        raise LockNotSupported("", f"{type(self).__name__} can't list its locks")

    def force_release_once(self, name: str, digest: str) -> bool:
        """Release the lock ``name`` regardless of its holder. Returns whether the lock was released.

        ``digest``: as in `Backend.force_release`: if not empty, release only if the lock still has the same holders.
        With the digest of one holder of a shared lock, only this holder is released.
        """
        raise LockNotSupported(name, f"{type(self).__name__} can't release by force")

    def subscribe(self, claim: Claim, wake: Callable[[], Any]) -> Callable[[], None] | None:
        """Arrange that ``wake`` is called as soon as another attempt to acquire for ``claim`` may succeed.

        Returns a function that cancels the subscription; ``None`` if the store has no wake-ups, so that waiters poll.
        """
        return None

    def run_script(self, request: EvalScript) -> Any:
        """Run a script for task records, and return its reply. Only for a store in memory."""
        raise TypeError(f"{request.script.name} is for Redis only")

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        most = limit if max_keys is None else max_keys
        found = yield from call_storage("", self._list, pattern, most)
        rows = found if max_keys is None else sorted(found, key=by_trouble)[:limit]
        return Listing(rows, len(found), (most is None or len(found) < most) and len(rows) == len(found))

    def _list(self, pattern: str, limit: int | None) -> list[LockInfo]:
        names = filter(glob_matcher(pattern), self.names())
        return list(islice((held for name in names if (held := self.describe_once(name)) is not None), limit))

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        return call_storage(name, self.force_release_once, name, digest)

    def _health(self) -> Flow[list[dict[str, Any]]]:
        """Acquire and release a lock with a random name. Returns one row, see `Backend.health`."""
        probe, problems = self.new_probe(), []
        claim = probe.new_claim()
        try:
            yield from self.algorithm.acquire(probe.primitive, claim, 0.0)
            yield from self.algorithm.release(probe.primitive, claim)
        except LockError as error:
            problems.append(f"grants no lock: {error.reason}")
        node = str(self.location) or type(self).__name__
        return [{"node": node, "ok": not problems, "problems": problems, "warnings": []}]

    def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)  # ends idle threads now, and busy threads after their calls

    def _begin_anew(self) -> None:
        self._threads = None  # in the child of a fork: the threads belong to the parent

    async def _call_in_thread(self, request: CallFunction) -> Any:
        """Call the function of ``request`` in a thread of this backend, and return its result.

        If the store hangs, it blocks these threads, not those of ``asyncio.to_thread``. A cancelled task does not wait
        for the function; ``undo`` is called after the function has returned.
        """
        if (threads := self._threads) is None:
            name = f"redlock-{type(self).__name__}"
            threads = self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        future = threads.submit(copy_context().run, _called, request)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if (undo := request.undo) is not None:
                future.add_done_callback(lambda _: undo())
            raise

    async def aclose(self) -> None:
        await self.aperform(CallFunction(self.close))

    # ── drivers ──────────────────────────────────────────────────────────────────────────────

    def perform(self, request: FlowRequest) -> Any:
        if type(request) is CallFunction:
            return _called(request)
        if type(request) is EvalScript:
            return self.perform(CallFunction(self.run_script, (request,)))
        if type(request) is Batch:
            return [self.perform(each) for each in request.calls]
        if type(request) is Sleep:
            return time.sleep(request.seconds)
        if type(request) is AwaitEvent:
            return request.event.wait(request.seconds)
        raise TypeError(f"{type(request).__name__} is for Redis only")

    async def aperform(self, request: FlowRequest) -> Any:
        if type(request) is Sleep:
            return await asyncio.sleep(request.seconds)
        if type(request) is AwaitEvent:
            return await request.event.wait_async(request.seconds)
        if type(request) is CallFunction and self.does_io:
            return await self._call_in_thread(request)
        return self.perform(request)
