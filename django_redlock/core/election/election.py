"""The algorithm of a leader election, shared by threads and asyncio.

A candidate asks for the lock until the lock is granted: then a term begins. The term ends when the candidate ends, when
the lock is lost, or when renewals have failed for so long that only ``stop_before`` seconds of the lease are left. The
rest of the lease is for ``on_lost``, which must stop the work before another candidate can be granted the lock. Then
the lock is released, and the candidate stands again. Kubernetes' leader election (client-go) has the same margin,
between its ``RenewDeadline`` and its ``LeaseDuration``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from logging import INFO, WARNING

from ...errors import LockError, LockLost, LockNotHeld
from ..events import logger
from ..flow.requests import Flow
from ..locks.hold import Hold
from ..locks.lock import Lock
from ..process.fork import on_fork
from ..process.mutex import new_mutex
from ..values import Seconds, seconds
from ..waiting.waiters import AwaitTurn
from ..waiting.wake_event import WakeEvent
from .work import Callback, CallElected, CallLost, Work

STAND_SECONDS = 1.0  # seconds for which one attempt waits; a candidate that ends while it waits ends after the attempt
PAUSE_SECONDS = 0.5, 1.0  # pause after a store that did not serve, or a failed on_elected, drawn at random
CHECK_SECONDS = 5.0  # longest wait for an event in this process


class Term:
    """The time for which a candidate leads. It is over when only ``stop_before`` seconds of the lease are left.

    ``over`` stays true once it is set: the leader's work may have stopped, so a late renewal must not revive the term.
    """

    def __init__(self, stop_before: float, fencing_token: int | None) -> None:
        self.stop_before = stop_before
        self.fencing_token = fencing_token
        self.over = False


class TermHold(Hold):
    """The hold of a candidate that leads."""

    __slots__ = ()

    @property
    def kept_until(self) -> float:
        """The time until which the lock stays taken after a release, in monotonic seconds by the store's clock.

        If the lease is lost, this is the end of the lease: the leader's work may need all of that time to stop, so
        nodes that still have the lock must keep it until then. Otherwise this is ``min_hold`` seconds after the grant.
        """
        return self.lease.valid_until if self._lost else super().kept_until


class CandidateLock(Lock):
    """The lock of a candidate.

    No event is emitted when another candidate holds the lock, because that is the normal state.
    """

    hold_type = TermHold

    def _emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        if reason != "taken":
            super()._emit_refused(waited, reason, holder)


class Election:
    """One candidate of an election: its state, and its flows (generators of requests).

    ``lock``: the model for the candidate's lock. Other arguments: see ``Backend.leader``.
    """

    def __init__(
        self, lock: Lock, on_elected: Callback | None, on_lost: Callback | None, stop_before: Seconds | None
    ) -> None:
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
        self._reset()
        on_fork(self._reset)  # the threads and the lease belong to the parent

    def _reset(self) -> None:
        self._standing = False
        self._term: Term | None = None
        self._lost = False
        self._work: Work | None = None
        self._failing = False  # the last attempt failed, which was logged
        self._pause_due = False  # after a failure: pause before the next round
        self._mutex = new_mutex()
        self._events: set[WakeEvent] = set()

    # ── what users read ──────────────────────────────────────────────────────────────────────

    @property
    def leading(self) -> bool:
        """True if this candidate leads now, by the monotonic clock. Sends no request.

        ``False`` from ``stop_before`` seconds before the end of the lease, and in a child of ``fork()``.
        """
        term = self._term
        if term is None or term.over:
            return False
        if self._lock.remaining > term.stop_before:
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
        if self._lost or self._term is not None:
            raise LockLost(self.name)
        raise LockNotHeld(self.name, "this candidate does not lead")

    # ── events within the process ────────────────────────────────────────────────────────────

    def _wake_all(self) -> None:
        with self._mutex:
            events, self._events = self._events, set()
        for event in events:
            event.set()

    def _wait(self, left: Callable[[], float]) -> Flow[None]:
        """Wait for the next `_wake_all`, at most for ``left()`` or `CHECK_SECONDS` seconds, whichever is shorter."""
        event = WakeEvent()
        with self._mutex:
            self._events.add(event)
        try:
            if (longest := left()) > 0:  # asked after the event is registered, so that no change is missed
                yield AwaitTurn(event, min(longest, CHECK_SECONDS))
        finally:
            with self._mutex:
                self._events.discard(event)

    def _end(self) -> None:
        """End the candidate: its term ends, and it does not stand for election again."""
        self._standing = False
        self._wake_all()

    def wait_flow(self, timeout: float) -> Flow[bool]:
        """Wait ``timeout`` seconds at most until this candidate leads. Returns whether it leads."""
        deadline = self._store.clock() + timeout

        def left() -> float:
            return 0.0 if self.leading or not self._standing else deadline - self._store.clock()

        while left() > 0:
            yield from self._wait(left)
        return self.leading

    # ── the algorithm ────────────────────────────────────────────────────────────────────────

    def round_flow(self) -> Flow[None]:
        """Ask for the lock for up to a second. If it is granted, lead until the term is over.

        Afterwards the caller must run `end_term_flow`, which releases the lock.
        """
        if self._pause_due:
            self._pause_due = False
            yield from self._pause()
        if not self._standing:
            return
        try:
            outcome = yield from self._lock.acquire_flow(STAND_SECONDS)
        except LockError as error:
            if not self._failing:
                logger.warning("leader %r: %s; asking again", self.name, error)
            self._failing = self._pause_due = True
            return
        self._failing = False
        if isinstance(outcome, Hold) and self._standing:
            yield from self._lead()

    def _lead(self) -> Flow[None]:
        granted = self._lock.remaining
        wanted = granted / 3 if self._stop_before is None else self._stop_before
        self._lost = False
        # ZooKeeper may grant less than the ttl.
        self._term = term = Term(min(wanted, granted / 2), self._lock.fencing_token)
        logger.info("leader %r: elected, fencing token %s", self.name, term.fencing_token)
        self._wake_all()
        if self._on_elected is not None:
            self._work = yield CallElected()
        while self._term_left() > 0:
            yield from self._wait(self._term_left)

    def _term_left(self) -> float:
        """Seconds until the term ends, if no renewal succeeds until then."""
        term, work = self._term, self._work
        if term is None or term.over or not self._standing or (work is not None and work.failed):
            return 0.0
        return self._lock.remaining - term.stop_before

    def end_term_flow(self) -> Flow[None]:
        """End the term, if there is one: call ``on_lost``, wait for the end of ``on_elected``, and release the lock.

        After an interruption, a second run does what is left to do.
        """
        lock, term, work = self._lock, self._term, self._work
        if term is not None:
            self._lost = self._standing and not (work is not None and work.failed)
            self._term = None
            level, end = (WARNING, "is lost") if self._lost else (INFO, "ends")
            logger.log(level, "leader %r: the lead %s", self.name, end)
            if self._on_lost is not None:
                yield CallLost()
            if work is not None:
                yield from self._end_work(work, term.stop_before)
        if lock.holds:
            try:
                yield from lock.release_flow()
            except LockError as error:  # the lease ends by itself
                logger.log(INFO if isinstance(error, LockLost) else WARNING, "leader %r: %s", self.name, error)
        if work is not None:
            self._pause_due = self._pause_due or work.failed
            yield from self._await_work(work)
            self._work = None

    def _end_work(self, work: Work, patience: float) -> Flow[None]:
        """Wait until ``on_elected`` returns, for up to ``patience`` seconds, and not beyond the end of the lease.

        Cancels ``on_elected`` first if it runs as an asyncio task.
        """
        work.cancel()
        clock = self._store.clock
        deadline = clock() + patience

        def left() -> float:
            return 0.0 if work.done else min(self._lock.remaining, deadline - clock())

        while left() > 0:
            yield from self._wait(left)
        if not work.done:
            logger.error("leader %r: on_elected still runs, but the lead has ended", self.name)

    def _await_work(self, work: Work) -> Flow[None]:
        """Wait until ``on_elected`` has returned, unless the candidate ends.

        Until then, the candidate must not lead again.
        """

        def left() -> float:
            return CHECK_SECONDS if self._standing and not work.done else 0.0

        while left() > 0:
            yield from self._wait(left)

    def _pause(self) -> Flow[None]:
        clock = self._store.clock
        until = clock() + random.uniform(*PAUSE_SECONDS)

        def left() -> float:
            return until - clock() if self._standing else 0.0

        while left() > 0:
            yield from self._wait(left)

    @property
    def _unfinished(self) -> bool:
        """True while the candidate stands for election, or has a lease to release."""
        return self._standing or bool(self._lock.holds)
