"""`Handle`: the base class of all kinds of locks, with holds, ``with`` blocks, and the flows of acquire and release."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NoReturn

from ...errors import LockDeadlock, LockError, LockLost, LockNotAcquired, LockNotHeld, LockUnavailable
from ..background.work import background
from ..contract import Store
from ..events import Event, report
from ..flow.replies import refusal_reason
from ..flow.requests import Flow
from ..keys import Keys
from ..lock_info import LockInfo
from ..options import LockOptions
from ..owner import Owner, describe_owner
from ..primitives.base import Primitive
from ..process import fork
from ..process.caller import Caller, calling
from ..process.mutex import state_mutex
from ..values import Claim, Lease, Refusal, Seconds, new_token
from .hold import End, Hold
from .self_deadlock import self_deadlock_flow

FOREVER = float("inf")
Ask = Callable[[Claim, float, float], Flow[Lease | Refusal]]
_LATE_GRANTS = 5  # `acquire` raises after this number of leases that had ended when their grants arrived


class Handle:
    """The holds of one lock handle, and the ``with`` block that owns each hold. Threads and tasks share the handle.

    A flow is a generator that yields requests and returns the result.
    """

    hold_type: type[Hold] = Hold
    several = False  # whether the handle can have several holds at once
    nesting_logged = False  # whether the warning of `self_deadlock_flow` was logged

    def __init__(self, store: Store, primitive: Primitive, name: str, keys: Keys, options: LockOptions) -> None:
        self.name = name
        self.store = store
        self.primitive = primitive
        self.keys = keys
        self.options = options
        self._holds: list[Hold] = []  # oldest first, with holds that have ended since the last grant
        # The hold of each open `with` block, in order of entry. A hold that is released within its block stays here.
        self._entered: list[Hold] = []
        self.adopted: Hold | None = None  # an adopted hold, which the first `with` block releases

    def __reduce__(self) -> NoReturn:
        """Raise ``TypeError``, because a copied or unpickled handle would release the lease of the original."""
        raise TypeError(f"cannot copy or pickle {type(self).__name__!r} object: make another handle of {self.name!r}")

    # ── which hold ───────────────────────────────────────────────────────────────────────────

    @property
    def holds(self) -> list[Hold]:
        """The holds of this handle that have not ended, oldest first."""
        return [hold for hold in self._holds if hold.active]

    @property
    def hold(self) -> Hold | None:
        """The hold to which ``token``, ``extend()`` and so on refer; ``None`` if nothing was acquired yet.

        This is the caller's latest hold or, after its end, the hold of the caller's innermost ``with`` block. For other
        callers it is the handle's latest hold, which may have ended.
        """
        holds = self._holds
        if len(holds) < 2 and not self._entered:
            return holds[0] if holds else None
        me = calling()
        if (own := self._latest_of(me)) is not None:
            return own
        if entered := [hold for hold in self._entered if hold.acquired_by == me]:
            return entered[-1]
        latest = self.holds or holds
        return latest[-1] if latest else None

    def _latest_of(self, caller: Caller, but: Collection[Hold] = ()) -> Hold | None:
        for hold in reversed(self._holds):
            if hold.acquired_by == caller and hold.active and hold not in but:
                return hold
        return None

    def required_hold(self) -> Hold:
        """Return `hold`. Raises ``LockNotHeld`` if it has ended, and ``LockLost`` if another caller has replaced it."""
        hold = self.hold
        if hold is None:
            raise LockNotHeld(self.name)
        if hold.end_kind is End.LOST and hold in self._entered:
            raise LockLost(self.name)
        if not hold.active:
            raise hold.not_held_error()
        return hold

    def _at_fork_reinit(self) -> None:
        """Drop all holds in the child of a fork, where the standard library calls this method of locks.

        A child releases nothing. A call in the holding process releases the locks in the background.
        """
        holds, self._holds, self._entered = self.holds, [], []
        for hold in holds:
            if hold.end():
                hold.release_later()

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def new_claim(self) -> Claim:
        """Return the claim for the next acquisition, with a new token."""
        options = self.options
        facts = self.primitive.facts
        if options.max_hold is not None:
            facts += (("max_hold", options.max_hold),)
        owner, asked = describe_owner(options.owner, options.ttl, facts), self.store.clock()
        return Claim(self.name, (self.keys,), new_token(), owner, options.ttl, options.fencing, asked=asked)

    def acquire_flow(self, wait: float, claim: Claim | None = None, ask: Ask | None = None) -> Flow[Hold | Refusal]:
        """Acquire the lock, waiting at most ``wait`` seconds. Returns the new hold of this handle, or a refusal.

        ``claim``: a new claim by default. ``ask``: the flow that acquires, by default in the local queue or the store.
        A lease that ended before its grant arrived is released in the background, and the flow tries again.
        """
        store, claim = self.store, claim or self.new_claim()
        start, late_grants, process = store.clock(), 0, fork.generation
        deadline = start + wait
        try:
            while True:
                outcome = yield from (ask or self._ask)(claim, wait, deadline)
                now = store.clock()
                if isinstance(outcome, Refusal):
                    self.emit_refused(now - start, "taken", outcome.holder)
                    return outcome
                if now < outcome.valid_until:
                    hold = self.on_granted(outcome)
                    hold.emit("acquired", waited=now - start)
                    return hold
                background.release_later(store, self.primitive, outcome.claim)
                late_grants += 1
                if now >= deadline or late_grants == _LATE_GRANTS:
                    slow = f"the store answers more slowly than the ttl ({claim.ttl:g} s)"
                    raise LockUnavailable(self.name, slow)  # noqa: TRY301  (the handler below reports it)
                claim = claim._replace(token=new_token())
        except LockError as error:
            # The store may have granted the claim, or lists it as a waiter.
            if isinstance(error, LockDeadlock) or (isinstance(error, LockUnavailable) and error.unconfirmed):
                background.release_later(store, self.primitive, claim, cancel=True)
            self.emit_refused(store.clock() - start, refusal_reason(error))
            raise
        except BaseException:  # interrupted or cancelled: the store may have granted the claim, or grant it later
            if process != fork.generation:  # the claim is the parent's
                raise
            for hold in self.holds:
                if hold.lease.claim.acquisition_id == claim.acquisition_id:  # interrupted after the grant
                    hold.end(End.TRANSFERRED)
            background.release_later(store, self.primitive, claim, cancel=True)
            raise

    def _ask(self, claim: Claim, wait: float, deadline: float) -> Flow[Lease | Refusal]:
        store, primitive = self.store, self.primitive
        queue = store.local_queues if wait > 0 and primitive.queued else None
        flow = (queue or store.algorithm).acquire(primitive, claim, deadline)
        if wait == FOREVER and background.renewals:  # without any, this process holds no lock
            return self_deadlock_flow(flow, self, claim)
        return flow

    def on_granted(self, lease: Lease) -> Hold:
        """Create and return a hold for ``lease``, and schedule its renewal."""
        hold = self.hold_type(self, lease)
        if self.several:
            with state_mutex:
                self._holds = [*self.holds, hold]
        else:
            for each in self._holds:
                if each.end_kind is None:  # its lease must be lost, because the store has granted the lock again
                    each.replace()
            self._holds = [hold]
        hold.schedule_renewal()
        return hold

    def give_up(self, hold: Hold) -> None:
        """Remove ``hold`` from this handle without ending it."""
        self._holds = [each for each in self._holds if each is not hold]

    def take(self, hold: Hold) -> None:
        """Make ``hold``, which another handle has given up, the only hold of this handle."""
        hold.belong_to(self)
        self._holds = [hold]

    def emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        store, kind = self.store, self.primitive.kind
        if store.hook is not None:
            lock: Any = self
            report(store.hook, Event("refused", lock, self.name, store.alias, waited, 0.0, reason, holder, kind))

    # ── with blocks ──────────────────────────────────────────────────────────────────────────

    def enter_block(self, outcome: Hold | Refusal) -> None:
        """Begin a ``with`` block for the hold ``outcome``, which the end of the block releases.

        Raises ``LockNotAcquired`` for a refusal.
        """
        if isinstance(outcome, Refusal):
            raise refusal_error(self.name, outcome)
        self._entered.append(outcome)

    def enter_adopted(self) -> bool:
        """Begin the first ``with`` block after ``adopt()``. The end of the block releases the adopted hold.

        Returns ``False``, and begins no block, for later blocks and if the hold has ended. Raises ``LockLost`` if its
        lease is lost.
        """
        hold, self.adopted = self.adopted, None
        if hold is None or not hold.active:
            return False
        hold.check()
        hold.acquired_by = calling()
        self._entered.append(hold)
        return True

    def leave_flow(self) -> Flow[None]:
        """End a ``with`` block, and return the flow that releases its hold.

        The caller leaves its innermost block, or the oldest block of the handle if the caller has entered none. If the
        hold of the block has ended, the caller's latest hold outside of blocks is released, because
        `threading.Condition.wait` releases and acquires within a block.
        """
        with state_mutex:
            entered = self._entered
            if not entered:
                return self.release_flow()
            index = 0
            if len(entered) > 1:
                me = calling()
                index = max((at for at, each in enumerate(entered) if each.acquired_by == me), default=0)
            hold = entered.pop(index)
        if not hold.active:
            hold = self._latest_of(calling(), but=entered) or hold
        return _nothing() if hold.end_kind is End.TRANSFERRED else self.release_flow(hold)

    # ── release, extend, describe ────────────────────────────────────────────────────────────

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        """End ``hold`` (default: `hold`). Hand its lock over to a waiter of this process, or release it in the store.

        Raises the errors of `Lock.release`.
        """
        hold = hold or self.required_hold()
        if hold.end_kind is End.LOST:
            raise LockLost(self.name)
        held, lost = self.store.clock() - hold.lease.since, False
        try:
            if not hold.end():
                raise hold.not_held_error()  # noqa: TRY301
            lost = hold.lost
            queue = self.store.local_queues if self.primitive.queued and not lost else None
            keep = self.options.min_hold - held
            released = yield from (queue or self.store.algorithm).release(self.primitive, hold.lease.claim, keep)
        except BaseException as error:
            if hold.active or isinstance(error, LockNotHeld):  # interrupted before `end`, or ended by another
                raise
            hold.release_later()
            if not (lost and isinstance(error, LockError)):
                hold.emit("released", held=held, reason="unconfirmed")
                raise
            released = False
        if lost or not released:
            hold.report_loss("before the release, the lease had ended or the lock was released by force")
            raise LockLost(self.name)
        hold.emit("released", held=held)

    def extend_flow(self, ttl: Seconds | None) -> Flow[float]:
        """Extend the lease as `Lock.extend` does."""
        return self.required_hold().extend_flow(ttl)

    def names_of(self, lease: Lease) -> tuple[str, ...]:
        """Return the names of the locks that ``lease`` holds."""
        return (self.name,)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """Return the lock as the store shows it; ``None`` when the lock is free."""
        return self.store.algorithm.describe(self.name, self.keys)

    def is_ours(self, info: LockInfo | None) -> bool:
        """Return whether ``info``, the store's description of the lock, shows the current hold of this handle."""
        hold = self.hold
        return hold is not None and hold.active and info is not None and info.matches(hold.lease)


def _nothing() -> Flow[None]:
    yield from ()


def refusal_error(name: str, refusal: Refusal, what: str | None = None) -> LockNotAcquired:
    """Return the error for ``refusal``. ``what``: the message; the default names the holder."""
    owner = Owner.parse(refusal.holder) if refusal.holder else None
    if what is None:
        what = "was done in this period" if owner and owner.extra.get("state") == "done" else "is held"
        what += f" by {owner}" if owner else ""
    retry_after = None if refusal.remaining == FOREVER else refusal.remaining
    return LockNotAcquired(name, what, retry_after, owner)
