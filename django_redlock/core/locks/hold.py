"""`Hold`: one acquisition of a lock, from its grant to its end, with its renewal and the report of its loss."""

from __future__ import annotations

import math
import weakref
from enum import Enum
from functools import partial
from typing import Any

from ...errors import LockLost, LockNotHeld
from ..background.work import Extension, background
from ..contract import Store
from ..events import Event, Kind, logger, report
from ..flow.replies import fault_error
from ..flow.requests import AwaitEvent, Fault, Flow
from ..options import LockOptions
from ..owner import Owner
from ..primitives.base import Primitive
from ..process import fork
from ..process.caller import WakeEvent, calling, has_ended, running_loop, task_is_ours
from ..process.mutex import state_mutex
from ..values import DRIFT, PRECISION, Lease, Seconds

_RETRIES = 20  # attempts to extend within one ttl, when an attempt fails or another extension is in flight
RAN_OUT = "the lease ran out"
FORCED_OR_FORGOTTEN = "it was released by force, or the store has forgotten it"
_UNANSWERED = Fault(TimeoutError("whether it was extended is unknown"))
_LATE_EXTENSION = 1.0  # seconds in which a request arrives that was in flight at the release


class End(Enum):
    """The ways in which a hold can end. They decide what the end of its ``with`` block does."""

    RELEASED = "released"  # raises LockNotHeld
    TRANSFERRED = "transferred"  # another holder or a background release has the lease: nothing to release
    LOST = "lost"  # raises LockLost


class Hold:
    """One acquisition of a lock: its lease and its caller. A hold ends once. Threads and tasks may share it.

    A handle has the only strong references to its holds, so a hold is renewed as long as its handle exists.
    ``acquired_by``: a weak reference to the thread or task, see `calling`. ``level``: how often the holder of a
    reentrant lock has acquired it.
    """

    level = 1
    end_kind: End | None = None
    _lost = _reported = _abandoned = False
    # One extension at a time, because a server may run two extensions in any order. `extend` waits for its outcome.
    _extension: Extension | None = None
    _waiting: tuple[WakeEvent, ...] = ()
    _ttl_limit = math.inf  # no extension is longer than an earlier one without a reply, which the server may run later

    def __init__(self, handle: Any, lease: Lease) -> None:  # a `Handle`, whose module imports this one
        self._handle = weakref.ref(handle)
        self.store: Store = handle.store
        self.primitive: Primitive = handle.primitive
        self.name: str = handle.name
        self.options: LockOptions = handle.options
        self.lease = lease
        self.acquired_by = calling()
        self._loop = running_loop()  # the loop that calls `on_lost`; None: a background thread
        # `asyncio.gather` runs `aacquire()` in a task that ends at once. The end of this task abandons no lock.
        self._acquired_in_wrapper = self._loop is not None and task_is_ours()
        self._generation = fork.generation

    # ── what event receivers and `on_lost` read ──────────────────────────────────────────────

    @property
    def active(self) -> bool:
        """Whether the hold has not ended. Also false in a child of ``fork()``: the lease belongs to the parent."""
        return self.end_kind is None and self._generation == fork.generation

    @property
    def token(self) -> str | None:
        """The token of the lease; ``None`` after the end."""
        return self.lease.claim.token.decode() if self.active else None

    @property
    def owner(self) -> Owner | None:
        """The owner that describes this holder; ``None`` after the end."""
        return Owner.parse(self.lease.claim.owner) if self.active else None

    @property
    def fencing_token(self) -> int | None:
        """The fencing token of the grant; ``None`` after the end."""
        return self.lease.fencing_token if self.active else None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, by the monotonic clock; 0 after the end and after a loss."""
        return max(0.0, self.lease.valid_until - self.store.clock()) if self.active and not self._lost else 0.0

    @property
    def lost(self) -> bool:
        """Whether the lease ended before its release."""
        if self._lost or self.end_kind is not None:
            return self._lost
        return self._generation == fork.generation and self.store.clock() >= self.lease.valid_until

    def check(self) -> None:
        """Raise ``LockLost`` if the lease is lost, ``LockNotHeld`` after the end. Sends no request."""
        if self.lost:
            raise LockLost(self.name)
        if not self.active:
            raise self.not_held_error()

    def not_held_error(self) -> LockNotHeld:
        """Return the error for a hold that is not active."""
        inherited = "is held by the parent process: a child of fork() holds nothing"
        return LockNotHeld(self.name, inherited if self.end_kind is None else None)

    # ── the end, and the loss ────────────────────────────────────────────────────────────────

    @property
    def kept_until(self) -> float:
        """The time until which the lock stays unavailable after a release: ``min_hold`` seconds after the grant."""
        return self.lease.since + self.options.min_hold

    def end(self, kind: End = End.RELEASED) -> bool:
        """End this hold, and cancel its renewal. Sends no request. Returns ``False`` if it has ended before."""
        now = self.store.clock()
        with state_mutex:
            if self.end_kind is not None or self._generation != fork.generation:
                return False
            self._lost = self._lost or kind is End.LOST or now >= self.lease.valid_until
            self.end_kind = kind
            background.cancel(self.lease.claim.token)
        return True

    def release_later(self, after: float = 0.0) -> None:
        """Release the lock in the background, ``after`` seconds from now at the earliest."""
        background.release_later(self.store, self.primitive, self.lease.claim, after=after, keep_until=self.kept_until)

    def replace(self) -> None:
        """End this hold as lost, because its handle has acquired the lock again."""
        if self.active:
            self.mark_lost(FORCED_OR_FORGOTTEN if self.lease.valid_until > self.store.clock() else RAN_OUT)
            self.end(End.LOST)

    def belong_to(self, handle: Any) -> None:
        """Set the handle to which events and ``on_lost`` refer."""
        self._handle = weakref.ref(handle)

    def mark_lost(self, reason: str) -> None:
        """Mark the lease as lost and report the loss in a background thread, unless the hold has ended."""
        with state_mutex:
            if not self.active:
                return
            self._lost = True
        self.release_later()  # because some nodes may still have the token
        # In the background: listeners may be slow or acquire locks, and must not delay the renewal of other locks.
        background.report(partial(self.report_loss, reason))

    def report_loss(self, reason: str) -> None:
        """Report the loss to the log, the event hook and ``on_lost``, once."""
        with state_mutex:
            reported, self._reported, self._lost = self._reported, True, True
        if reported:
            return
        logger.warning("lock %r was lost: %s", self.name, reason)
        self.emit("lost", held=self.store.clock() - self.lease.since, reason=reason)
        callback, loop = self.options.loss_callback, self._loop
        if callback is None:
            return
        try:
            if loop is None or loop.is_closed():
                callback(self._subject)
            else:
                loop.call_soon_threadsafe(callback, self._subject)
        except Exception:
            logger.exception("on_lost of lock %r failed", self.name)

    def emit(self, kind: Kind, waited: float = 0.0, held: float = 0.0, reason: str = "") -> None:
        """Report an event of this hold to the hook of its store. ``waited``, ``held``: seconds."""
        store = self.store
        if store.hook is not None:
            holder, primitive = self.lease.claim.owner.decode(errors="replace"), self.primitive.kind
            event = Event(kind, self._subject, self.name, store.alias, waited, held, reason, holder, primitive)
            report(store.hook, event)

    @property
    def _subject(self) -> Any:
        """The argument of events and ``on_lost``: the handle, or this hold if the handle can have several."""
        handle = self._handle()
        return self if handle is None or handle.several else handle

    def _report_abandoned(self) -> None:
        owner = Owner.parse(self.lease.claim.owner)
        logger.warning(
            "lock %r is still held and renewed, but %s, which acquired it, has ended; use `with`, release it "
            "in another thread, or limit it with max_hold",
            self.name,
            owner.task or owner.thread,
        )
        self.emit("abandoned", held=self.store.clock() - self.lease.since)

    # ── extensions, one at a time, and when they are due ─────────────────────────────────────

    def extend_flow(self, ttl: Seconds | None) -> Flow[float]:
        """Extend the lease as `Lock.extend` does. Waits for an extension that is in flight."""
        wanted = self.options.ttl if ttl is None else self.store.check_ttl(ttl)
        while True:
            with state_mutex:
                self.check()
                if self._extension is None:
                    extension = self._begin_extension(wanted)
                    break
                outcome_known = WakeEvent()
                self._waiting += (outcome_known,)
            yield AwaitEvent(outcome_known, self.remaining)
        algorithm = self.store.algorithm
        try:
            if algorithm.extend is not None:
                outcome = yield from algorithm.extend(*extension)
            else:
                (outcome,) = yield from algorithm.extend_many(self.primitive, [extension])
        except BaseException:
            self.on_extended(extension, _UNANSWERED)
            raise
        self.on_extended(extension, outcome)
        if isinstance(outcome, Fault):
            raise fault_error(self.name, outcome)
        self.check()
        return self.remaining

    def _begin_extension(self, ttl: float) -> Extension:
        """Return the extension to ``ttl`` seconds, or less if ``max_hold`` limits it. Called under the mutex.

        If ``ttl`` is shorter than the ttl of the lease, the lease is shortened at once, because the server may run the
        request although its reply is lost.
        """
        ttl = min(ttl, self._ttl_limit)
        if self.options.max_hold is not None:
            ttl = max(PRECISION, min(ttl, self.lease.since + self.options.max_hold - self.store.clock()))
        if ttl < self.lease.ttl:
            self.lease = self.lease.shortened(self.store.clock(), ttl)
        self._extension = Extension(self.lease, ttl)
        return self._extension

    def begin_renewal(self) -> Extension | None:
        """Return the extension that is due, now in flight; ``None`` if the lease must not be extended now."""
        lease = self.lease
        if self._lost or not self.active:
            return None
        if self.store.clock() >= lease.valid_until:
            self.mark_lost(RAN_OUT)
            return None
        if not self._is_renewable():
            self.schedule_renewal()
            return None
        if not (self._abandoned or self.options.ends_by_itself):
            ended_loop = self._loop is not None and self._loop.is_closed()
            self._abandoned = ended_loop or (not self._acquired_in_wrapper and has_ended(self.acquired_by))
            if self._abandoned:
                background.report(self._report_abandoned)
        with state_mutex:
            if not self.active or self.lease is not lease:
                return None
            if self._extension is None:
                return self._begin_extension(lease.ttl)
        background.schedule(self, lease.ttl / _RETRIES)  # extend() is in flight, and may fail
        return None

    def on_extended(self, extension: Extension, outcome: Lease | Fault | None) -> None:
        """Update the lease after ``extension``. ``outcome``: as `Algorithm.extend_many` returns it."""
        with state_mutex:
            waiting, ended = self._waiting, self.end_kind is not None
            self._extension, self._waiting = None, ()
            if isinstance(outcome, Fault):
                self._ttl_limit = min(self._ttl_limit, extension.ttl)
            elif outcome is not None and not ended:
                self.lease = outcome
        for outcome_known in waiting:
            outcome_known.set()
        if ended:  # it may have restored the lock, after the release, on a server that had lost it
            self.release_later(after=_LATE_EXTENSION)
        elif outcome is None:
            self.mark_lost(FORCED_OR_FORGOTTEN)
        elif isinstance(outcome, Fault):
            background.schedule(self, min(self.lease.valid_until - self.store.clock(), self.lease.ttl / _RETRIES))
        else:
            self.schedule_renewal()

    def schedule_renewal(self) -> None:
        """Schedule the renewal after a third of the ttl or, without renewal, the loss at the end of the lease."""
        delay = self.lease.valid_until - self.store.clock()
        if self._is_renewable():
            delay -= self.lease.ttl * 2 / 3
        background.schedule(self, delay)

    def _is_renewable(self) -> bool:
        """Return whether to renew the lease: with ``auto_renew``, if the lease ends before ``max_hold`` does."""
        options, lease = self.options, self.lease
        if options.max_hold is None or not options.auto_renew:
            return options.auto_renew
        end = lease.valid_until + lease.ttl * DRIFT + PRECISION
        return end + PRECISION < lease.since + options.max_hold
