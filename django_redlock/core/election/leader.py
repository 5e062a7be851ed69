"""`Leader`: a candidate of an election as a context, for threads and for asyncio.

A candidate asks for the lock until the lock is granted: then a term begins. The term ends when the candidate ends, when
the lock is lost, or when renewals have failed for so long that only ``stop_before`` seconds of the lease are left. The
rest of the lease is for ``on_lost``, which must stop the work before another candidate can be granted the lock. Then
the lock is released, and the candidate stands again. Kubernetes' leader election (client-go) has the same margin,
between its ``RenewDeadline`` and its ``LeaseDuration``.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from logging import INFO, WARNING
from typing import Any, Self

from ...errors import LockError, LockLost, LockNotHeld
from ..events import logger
from ..flow.drivers import adrive, drive
from ..flow.requests import Flow
from ..locks.hold import Hold
from ..locks.lock import Lock
from ..options import wait_seconds
from ..process import fork
from ..process.caller import check_may_block, running_loop
from ..process.threads import Kind, start
from ..values import Seconds, seconds
from ..waiting.waiters import AwaitTurn
from ..waiting.wake_event import WakeEvent

Callback = Callable[[Any], Any]
Call = Future[None] | asyncio.Task[None]  # one call of a callback
STAND_SECONDS = 1.0  # seconds for which one attempt waits; a candidate that ends while it waits ends after the attempt
PAUSE_SECONDS = 0.5, 1.0  # pause after a store that did not serve, or a failed on_elected, drawn at random
CHECK_SECONDS = 5.0  # longest wait for an event in this process


class TermHold(Hold):
    """The hold of a candidate that leads. Its term is over when only ``stop_before`` seconds of the lease are left.

    ``over`` stays true once it is set: the leader's work may have stopped, so a late renewal must not revive the term.
    """

    __slots__ = ("over", "stop_before")

    over: bool
    stop_before: float

    @property
    def kept_until(self) -> float:
        """As for any hold, but a lost lock stays taken until the lease ends: the leader's work may need that time."""
        return self.lease.valid_until if self._lost else super().kept_until


class CandidateLock(Lock):
    """The lock of a candidate. That another candidate holds it is the normal state, and no event."""

    hold_type = TermHold

    def _emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        if reason != "taken":
            super()._emit_refused(waited, reason, holder)


class Leader:
    """A candidate of the election ``name``. At most one candidate of a name leads at a time.

    Created by ``backend.leader(name, …)`` or ``leader(name, …)``. Within ``with`` or ``async with`` the candidate
    stands for election in the background, leads, and stands again after a loss. At the end of the block a leader calls
    ``on_lost`` and then releases the lock, so that another candidate can lead.
    """

    def __init__(
        self, lock: Lock, on_elected: Callback | None, on_lost: Callback | None, stop_before: Seconds | None
    ) -> None:
        """``lock``: the model for the candidate's lock. Other arguments: see ``Backend.leader``."""
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
        options = lock.options._replace(on_lost=lambda _: self._wake_all())
        self._lock = CandidateLock(lock.store, lock.primitive, lock.name, lock.keys, options)
        self._store = lock.store
        self._runner: Any = None  # the thread or task that stands and leads
        self._reset(None)

    def _reset(self, stands_in: int | None) -> None:
        self._stands_in = stands_in  # the `fork.generation` of the process that stands; None: not standing
        self._term: TermHold | None = None
        self._lost = False
        self._work: Call | None = None  # the call of on_elected
        self._failing = False  # the last attempt failed, which was logged
        self._pause_due = False  # after a failure: pause before the next round
        self._events: set[WakeEvent] = set()

    # ── what users read ──────────────────────────────────────────────────────────────────────

    @property
    def leading(self) -> bool:
        """True if this candidate leads now, by the monotonic clock. Sends no request.

        ``False`` from ``stop_before`` seconds before the end of the lease, and in a child of ``fork()``.
        """
        term = self._term
        if term is None or term.over or not term.active:
            return False
        if term.remaining > term.stop_before:
            return True
        term.over = True
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
        """Wait until this candidate leads, for ``timeout`` seconds at most (``None``: until the block ends).

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
        for callback in (self._on_elected, self._on_lost):
            if inspect.iscoroutinefunction(callback):
                raise TypeError(f"{callback.__name__} is a coroutine function: use `async with leader(…)`")
        self._begin()
        try:
            self._runner = start(Kind.LEADER, self._run, postpones_forks=False)
        except BaseException:  # interrupted
            self._stands_in = None
            raise
        if self._runner is None:
            self._stands_in = None
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
        self._reset(fork.generation)

    def _end(self) -> None:
        """End the candidate: its term ends, and it does not stand for election again."""
        self._stands_in = None
        self._wake_all()

    def _run(self) -> None:
        while self._standing or self._lock.holds:
            for flow in (self._stand_flow, self._end_term_flow):
                try:
                    drive(flow(), self._store.perform)
                except BaseException:  # a defect, perhaps of a custom backend: the candidate stands again
                    logger.exception("leader %r failed", self.name)
                    self._pause_due = True

    async def _arun(self) -> None:
        while self._standing or self._lock.holds:
            for flow in (self._stand_flow, self._end_term_flow):
                try:
                    await adrive(flow(), self._store.aperform)
                except asyncio.CancelledError:  # the event loop ends
                    self._end()
                except Exception:
                    logger.exception("leader %r failed", self.name)
                    self._pause_due = True

    # ── the algorithm ────────────────────────────────────────────────────────────────────────

    def _stand_flow(self) -> Flow[None]:
        """Ask for the lock for up to a second. If it is granted, lead until the term is over.

        Afterwards the caller must run `_end_term_flow`, which releases the lock.
        """
        clock = self._store.clock
        if self._pause_due:
            self._pause_due, until = False, clock() + random.uniform(*PAUSE_SECONDS)
            yield from self._wait_while(lambda: until - clock() if self._standing else 0.0)
        if not self._standing:
            return
        try:
            term = yield from self._lock.acquire_flow(STAND_SECONDS)
        except LockError as error:
            if not self._failing:
                logger.warning("leader %r: %s; asking again", self.name, error)
            self._failing = self._pause_due = True
            return
        self._failing = False
        if isinstance(term, TermHold) and self._standing:
            granted = term.remaining  # ZooKeeper may grant less than the ttl
            wanted = granted / 3 if self._stop_before is None else self._stop_before
            term.over, term.stop_before = False, min(wanted, granted / 2)
            self._lost, self._term = False, term
            logger.info("leader %r: elected, fencing token %s", self.name, term.fencing_token)
            self._wake_all()
            if self._on_elected is not None:
                self._work = self._start("on_elected", self._on_elected)
            yield from self._wait_while(lambda: self._seconds_of(term))

    def _seconds_of(self, term: TermHold) -> float:
        """Return the seconds until ``term`` ends, if no renewal succeeds until then."""
        return 0.0 if term.over or not self._standing or self._failed else term.remaining - term.stop_before

    @property
    def _failed(self) -> bool:
        """Whether ``on_elected`` has raised an exception."""
        work = self._work
        return work is not None and work.done() and not work.cancelled() and work.exception() is not None

    def _end_term_flow(self) -> Flow[None]:
        """End the term, if there is one: call ``on_lost``, wait for the end of ``on_elected``, and release the lock.

        After an interruption, a second run does what is left to do.
        """
        lock, term, work, clock = self._lock, self._term, self._work, self._store.clock
        if term is not None:
            self._lost = self._standing and not self._failed
            self._term = None
            level, end = (WARNING, "is lost") if self._lost else (INFO, "ends")
            logger.log(level, "leader %r: the lead %s", self.name, end)
            if self._on_lost is not None:
                lost = self._start("on_lost", self._on_lost)
                yield from self._wait_while(lambda: 0.0 if lost.done() else CHECK_SECONDS)
            if work is not None:
                work.cancel()  # a task; a thread can't be cancelled, and must check `leading`
                until = clock() + term.stop_before
                yield from self._wait_while(lambda: 0.0 if work.done() else min(lock.remaining, until - clock()))
                if not work.done():
                    logger.error("leader %r: on_elected still runs, but the lead has ended", self.name)
        if lock.holds:
            try:
                yield from lock.release_flow()
            except LockError as error:  # the lease ends by itself
                logger.log(INFO if isinstance(error, LockLost) else WARNING, "leader %r: %s", self.name, error)
        if work is not None:  # while on_elected runs, the candidate must not lead again
            yield from self._wait_while(lambda: 0.0 if work.done() or not self._standing else CHECK_SECONDS)
            self._pause_due = self._pause_due or self._failed
            self._work = None

    def _start(self, what: str, callback: Callback) -> Call:
        """Call ``callback`` in a new task of the running event loop, else in a new thread. ``on_lost``: in this one."""
        call: Call
        if running_loop() is not None:
            call = asyncio.create_task(self._acall(callback), name=f"redlock-{what} {self.name}")
        else:
            call = Future()
            call.set_running_or_notify_cancel()
            run = partial(self._call, callback, call)
            if what == "on_lost":
                run()
            elif start(Kind.LEADER, run, postpones_forks=False) is None:
                call.set_exception(RuntimeError("no thread can be started"))
        call.add_done_callback(partial(self._on_end, what))
        return call

    def _call(self, callback: Callback, call: Future[None]) -> None:
        try:
            callback(self)
        except BaseException as error:  # noqa: BLE001  (it is logged)
            call.set_exception(error)
        else:
            call.set_result(None)

    async def _acall(self, callback: Callback) -> None:
        result = callback(self)
        if inspect.isawaitable(result):
            await result

    def _on_end(self, what: str, call: Call) -> None:
        if not call.cancelled() and (error := call.exception()) is not None:
            logger.error("%s of leader %r failed", what, self.name, exc_info=error)
        self._wake_all()

    # ── events within the process ────────────────────────────────────────────────────────────

    def _wait_while(self, left: Callable[[], float]) -> Flow[None]:
        """Wait while ``left()`` returns more than 0 seconds. It is called again after each `_wake_all`."""
        while True:
            event = WakeEvent()
            self._events.add(event)  # before `left()` is called, so that no change is missed
            try:
                if (longest := left()) <= 0:
                    return
                yield AwaitTurn(event, min(longest, CHECK_SECONDS))
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
