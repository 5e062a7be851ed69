"""`Leader`: a candidate in an election, as a context manager for threads and for asyncio.

A term begins when the candidate acquires the lock. The term ends when the candidate ends, when the lock is lost, or
when failed renewals leave only ``stop_before`` seconds of the lease. In this rest of the lease ``on_lost`` must stop
the work, before another candidate can acquire the lock. Then the lock is released, and the candidate stands for
election again. Kubernetes' leader election (client-go) has the same margin, between ``RenewDeadline`` and
``LeaseDuration``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from inspect import iscoroutinefunction
from logging import INFO, WARNING
from typing import Any, Self

from ...errors import LockError, LockLost, LockNotHeld
from ..events import logger
from ..flow.drivers import adrive, drive
from ..flow.requests import AwaitEvent, Flow
from ..locks.hold import Hold
from ..locks.lock import Lock
from ..options import wait_seconds
from ..process import fork
from ..process.caller import WakeEvent, check_may_block
from ..process.threads import Kind, start
from ..values import Seconds, seconds
from .callbacks import Call, Callback, begin_call

STAND_SECONDS = 1.0  # seconds for which one attempt waits; a candidate that ends while it waits ends after the attempt
PAUSE_SECONDS = 0.5, 1.0  # pause after a store that did not serve, or a failed on_elected, drawn at random
CHECK_SECONDS = 5.0  # longest wait for an event in this process


class TermHold(Hold):
    """A term of the leader: its hold of the lock."""

    @property
    def kept_until(self) -> float:
        """As in `Hold`. A lost lock stays unavailable until its lease ends: the leader's work may need this time."""
        return self.lease.valid_until if self._lost else super().kept_until


class CandidateLock(Lock):
    """The lock of a candidate. It reports no "refused" events, because another leader is the normal state."""

    hold_type = TermHold

    def emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        if reason != "taken":
            super().emit_refused(waited, reason, holder)


class Leader:
    """A candidate in the election ``name``. At most one candidate of a name leads at a time.

    Created by ``backend.leader(name, …)`` or ``leader(name, …)``. Within ``with`` or ``async with`` the candidate
    stands for election in the background, leads, and stands again after a loss. At the end of the block a leader calls
    ``on_lost`` and then releases the lock, so that another candidate can lead.
    """

    _stands_in: int | None = None  # the `fork.generation` of the process that stands; None: not standing
    _runner: Any = None  # the thread or task that stands and leads
    _term: TermHold | None = None
    _margin = 0.0  # the term is over when the lease has only so many seconds left
    _over = False  # stays true until the next term: the work may have stopped, so a late renewal must not revive it
    _lost = False  # the last term was lost
    _work: Call | None = None  # the call of on_elected
    _failing = False  # the last attempt failed, which was logged: the candidate pauses before the next

    def __init__(
        self, lock: Lock, on_elected: Callback | None, on_lost: Callback | None, stop_before: Seconds | None
    ) -> None:
        """Create a candidate from ``lock``, a lock with the candidate's name and options. See ``Backend.leader``."""
        for what, callback in (("on_elected", on_elected), ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{what} must be a callable that gets the leader, not {callback!r}")
        ttl = lock.options.ttl
        self._stop_before = None if stop_before is None else seconds(stop_before, "stop_before")
        if self._stop_before is not None and self._stop_before > ttl / 2:
            raise ValueError(f"stop_before must be at most half of the ttl ({ttl / 2:g} s), not {self._stop_before:g}")
        self.name = lock.name
        self._on_elected = on_elected
        self._on_lost = on_lost
        options = lock.options._replace(loss_callback=lambda _: self._wake_all())
        self._lock = CandidateLock(lock.store, lock.primitive, lock.name, lock.keys, options)
        self._store = lock.store
        self._events: set[WakeEvent] = set()

    # ── what users read ──────────────────────────────────────────────────────────────────────

    @property
    def leading(self) -> bool:
        """Whether this candidate leads now, by the monotonic clock. Sends no request.

        ``False`` from ``stop_before`` seconds before the end of the lease, and in a child of ``fork()``.
        """
        term = self._term
        if term is None or self._over or not term.active:
            return False
        if term.remaining > self._margin:
            return True
        self._over = True
        self._wake_all()
        return False

    @property
    def fencing_token(self) -> int | None:
        """A number that grows with every term of any candidate; ``None`` when this candidate does not lead.

        Refuse writes with a smaller number: see `Lock.fencing_token`.
        """
        term = self._term
        return term.fencing_token if term is not None and self.leading else None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends: the time that ``on_lost`` has left. 0 without a lease."""
        return self._lock.remaining

    def check(self) -> None:
        """Raise ``LockLost`` if the lead was lost, ``LockNotHeld`` if this candidate does not lead yet."""
        if self.leading:
            return
        if self._lost or (self._term is not None and self._term.active):
            raise LockLost(self.name)
        raise LockNotHeld(self.name, "this candidate does not lead")

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Wait until this candidate leads, for at most ``timeout`` seconds (``None``: until the block ends).

        Returns whether this candidate leads. Raises ``RuntimeError`` outside of the ``with`` block, and in a coroutine
        if it has to wait.
        """
        return drive(self._wait_flow(timeout), self._store.perform)

    async def await_(self, timeout: Seconds | None = None) -> bool:  # noqa: ASYNC109
        """`wait` for asyncio."""
        return await adrive(self._wait_flow(timeout), self._store.aperform)

    def __repr__(self) -> str:
        state = "leading" if self.leading else "standing" if self._standing else "idle"
        return f"<{state} {type(self).__name__} name={self.name!r}>"

    # ── the block ────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        check_may_block(f"leader {self.name!r}", "`async with leader(…)`")
        if iscoroutinefunction(self._on_elected) or iscoroutinefunction(self._on_lost):
            raise TypeError(f"leader {self.name!r} has a coroutine function as callback: use `async with leader(…)`")
        self._begin()
        try:
            self._runner = start(Kind.LEADER, self._run)
        finally:
            if self._runner is None:
                self._stands_in = None
        if self._runner is None:
            raise RuntimeError(f"leader {self.name!r} can't stand for election: no thread can be started")
        return self

    def __exit__(self, *error: object) -> None:
        if self._standing:  # not in a child of fork()
            self._end()
            self._runner.join()

    async def __aenter__(self) -> Self:
        self._begin()
        self._runner = asyncio.create_task(self._arun(), name=f"redlock-leader {self.name}")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._standing:
            self._end()
            await asyncio.wait({self._runner})  # unlike `await task`, a cancellation here does not cancel the task

    @property
    def _standing(self) -> bool:
        return self._stands_in == fork.generation

    def _begin(self) -> None:
        if self._standing:
            raise RuntimeError(f"leader {self.name!r} stands already: each block needs a leader of its own")
        self._stands_in = fork.generation
        self._runner = self._term = self._work = None
        self._lost = self._failing = False

    def _end(self) -> None:
        """End the candidate: its term ends, and it does not stand for election again."""
        self._stands_in = None
        self._wake_all()

    def _run(self) -> None:
        while self._standing or self._term or self._lock.holds:
            try:
                drive(self._round_flow(), self._store.perform)
            except BaseException:  # a defect, perhaps of a custom backend: the candidate stands again
                logger.exception("leader %r failed", self.name)
                self._failing = True

    async def _arun(self) -> None:
        while self._standing or self._term or self._lock.holds:
            try:
                await adrive(self._round_flow(), self._store.aperform)
            except asyncio.CancelledError:  # the event loop ends
                self._end()
            except Exception:
                logger.exception("leader %r failed", self.name)
                self._failing = True

    # ── the algorithm ────────────────────────────────────────────────────────────────────────

    def _round_flow(self) -> Flow[None]:
        """Stand for election for up to a second, lead if elected, and end the term.

        If the previous round was interrupted, first completes its remaining steps.
        """
        if self._term is None and not self._lock.holds:
            yield from self._stand_flow()
        if self._term is not None:
            yield from self._wait_while(self._seconds_left)
            yield from self._end_work_flow(self._term)
        if self._lock.holds:
            try:
                yield from self._lock.release_flow()
            except LockError as error:  # the lease ends by itself
                logger.log(INFO if isinstance(error, LockLost) else WARNING, "leader %r: %s", self.name, error)
        if (work := self._work) is not None:  # while on_elected runs, the candidate must not lead again
            yield from self._wait_while(lambda: 0.0 if work.done() or not self._standing else CHECK_SECONDS)
            self._work = None

    def _stand_flow(self) -> Flow[None]:
        """Try to acquire the lock for up to a second. If granted, begin a term."""
        clock = self._store.clock
        if self._failing:
            until = clock() + random.uniform(*PAUSE_SECONDS)
            yield from self._wait_while(lambda: until - clock() if self._standing else 0.0)
        if not self._standing:
            return
        try:
            term = yield from self._lock.acquire_flow(STAND_SECONDS)
        except LockError as error:
            if not self._failing:
                logger.warning("leader %r: %s; asking again", self.name, error)
            self._failing = True
            return
        self._failing = False
        if isinstance(term, TermHold) and self._standing:
            granted = term.remaining  # ZooKeeper may grant less than the ttl
            self._margin = min(granted / 3 if self._stop_before is None else self._stop_before, granted / 2)
            self._over = self._lost = False
            self._term = term
            logger.info("leader %r: elected, fencing token %s", self.name, term.fencing_token)
            self._wake_all()
            if self._on_elected is not None:
                self._work = self._call("on_elected", self._on_elected)

    def _seconds_left(self) -> float:
        """Return the seconds until the term ends, if no renewal succeeds until then."""
        ends = self._term is None or self._over or self._failing or not self._standing
        return 0.0 if ends else self._lock.remaining - self._margin

    def _end_work_flow(self, term: TermHold) -> Flow[None]:
        """Call ``on_lost``, and wait for the end of ``on_elected``."""
        clock, work = self._store.clock, self._work
        self._term, self._lost = None, self._standing and not self._failing
        level, end = (WARNING, "is lost") if self._lost else (INFO, "ends")
        logger.log(level, "leader %r: the lead %s", self.name, end)
        if self._on_lost is not None:
            lost = self._call("on_lost", self._on_lost)
            yield from self._wait_while(lambda: 0.0 if lost.done() else CHECK_SECONDS)
        if work is not None:
            work.cancel()  # a task; a thread must check `leading`
            until = clock() + self._margin
            yield from self._wait_while(lambda: 0.0 if work.done() else min(term.remaining, until - clock()))
            if not work.done():
                logger.error("leader %r: on_elected still runs, but the lead has ended", self.name)

    def _call(self, what: str, callback: Callback) -> Call:
        """Begin a call of ``callback``, and return the call. An error in the call is logged, and ends the term."""

        def ended(call: Call) -> None:
            if not call.cancelled() and (error := call.exception()) is not None:
                logger.error("%s of leader %r failed", what, self.name, exc_info=error)
                self._failing = True
            self._wake_all()

        call = begin_call(what, callback, self)
        call.add_done_callback(ended)
        return call

    # ── events within the process ────────────────────────────────────────────────────────────

    def _wait_while(self, left: Callable[[], float]) -> Flow[None]:
        """Wait while ``left()`` returns more than 0 seconds. Calls ``left()`` again after each `_wake_all`."""
        while True:
            event = WakeEvent()
            self._events.add(event)  # before `left()` is called, so that no change is missed
            try:
                if (longest := left()) <= 0:
                    return
                yield AwaitEvent(event, min(longest, CHECK_SECONDS))
            finally:
                self._events.discard(event)

    def _wake_all(self) -> None:
        for event in tuple(self._events):
            event.set()

    def _wait_flow(self, timeout: Seconds | None) -> Flow[bool]:
        if not self._standing:
            raise RuntimeError(f"leader {self.name!r} does not stand for election: wait within its `with` block")
        until = self._store.clock() + wait_seconds(True, -1 if timeout is None else timeout)
        yield from self._wait_while(lambda: 0.0 if self.leading or not self._standing else until - self._store.clock())
        return self.leading
