"""`Handle`: the holds of one handle, its ``with`` blocks, and the flows behind the methods of a `Lock`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NoReturn

from ...errors import LockError, LockLost, LockNotAcquired, LockNotHeld, LockUnavailable
from ..contract import Store
from ..events import Event, report
from ..flow.replies import refusal_reason
from ..flow.requests import Flow, Sleep
from ..keys import Keys
from ..lock_info import LockInfo
from ..options import LockOptions
from ..owner import Owner, describe_owner
from ..primitives.base import Primitive
from ..primitives.periodic import Period
from ..process.caller import Caller, calling
from ..process.mutex import state_mutex
from ..renewal.registry import renewal
from ..values import Claim, Lease, Refusal, Seconds, new_token
from .deadlock import check_nesting_flow
from .hand_off import HANDED_OFF, NOT_HANDED_OFF, HandedOff, adopt_request, check_hand_off, give_flow, text_claim
from .hold import ENDED_BEFORE, End, Hold

FOREVER = float("inf")
Ask = Callable[[Claim, float, float], Flow[Lease | Refusal]]
_LATE_GRANTS = 5  # number of leases that ended before their grant arrived, at which `acquire` raises
_LATE_EXTENSION = 1.0  # seconds in which an extension that was in flight at the release arrives
_PAUSE = 0.01  # seconds after the first late grant, doubled after each further one


class Handle:
    """The holds of one lock handle, and the ``with`` block that owns each hold. Threads and tasks share the handle.

    A flow is a generator that yields requests and returns the result.
    """

    hold_type: type[Hold] = Hold
    several = False  # whether the handle can have several holds at once
    nesting_logged = False  # whether the warning of `check_nesting_flow` was logged

    def __init__(self, store: Store, primitive: Primitive, name: str, keys: Keys, options: LockOptions) -> None:
        self.name = name
        self.store = store
        self.primitive = primitive
        self.keys = keys
        self.options = options
        self._holds: list[Hold] = []  # oldest first, with holds that have ended since the last grant
        self._blocks: list[tuple[Caller, Hold]] = []  # the `with` blocks: who entered, and the hold to release
        self._unentered: Hold | None = None  # an adopted hold, which the first `with` block releases

    def __reduce__(self) -> NoReturn:
        """Raise ``TypeError``: a copied or unpickled handle would release the lease of the original."""
        raise TypeError(f"cannot copy or pickle {type(self).__name__!r} object: make another handle of {self.name!r}")

    # ── which hold ───────────────────────────────────────────────────────────────────────────

    @property
    def holds(self) -> list[Hold]:
        """The holds of this handle that have not ended, oldest first."""
        return [hold for hold in self._holds if hold.active]

    @property
    def hold(self) -> Hold | None:
        """The hold that ``token``, ``extend()`` and so on are about; ``None`` if nothing was acquired yet.

        It is the caller's latest hold, or the hold of the ``with`` block that the caller is in. For other callers it is
        the handle's latest hold, which may have ended.
        """
        holds = self._holds
        if len(holds) < 2 and not self._blocks:
            return holds[0] if holds else None
        me = calling()
        if (own := self._latest_of(me)) is not None:
            return own
        if entered := [hold for by, hold in self._blocks if by == me]:
            return entered[-1]
        latest = self.holds or holds
        return latest[-1] if latest else None

    def _latest_of(self, caller: Caller, but: Collection[Hold] = ()) -> Hold | None:
        """Return the latest active hold that ``caller`` has acquired, except the holds in ``but``."""
        for hold in reversed(self._holds):
            if hold.acquired_by == caller and hold.active and hold not in but:
                return hold
        return None

    def required_hold(self) -> Hold:
        """Return `hold`. Raises ``LockNotHeld`` if it has ended, and ``LockLost`` if another caller has replaced it."""
        hold = self.hold
        if hold is None:
            raise LockNotHeld(self.name)
        if hold.end_kind is End.LOST and any(hold is each for _, each in self._blocks):
            raise LockLost(self.name)
        if not hold.active:
            raise hold.not_held_error()
        return hold

    def _at_fork_reinit(self) -> None:
        """Hold nothing. The standard library calls this method of a lock in the child of a fork.

        A child releases nothing. In the process that holds the lock, the lock is released in the background.
        """
        holds, self._holds, self._blocks = self.holds, [], []
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
        if options.every:
            facts += (("every", options.every),)
        owner, asked = describe_owner(options.owner, options.ttl, facts), self.store.clock()
        claim = Claim(self.name, (self.keys,), new_token(), owner, options.ttl, options.fencing, asked=asked)
        return claim._replace(payload=Period(self.name, options.every)) if options.every else claim

    def acquire_flow(self, wait: float, claim: Claim | None = None, ask: Ask | None = None) -> Flow[Hold | Refusal]:
        """Ask for the lock for ``wait`` seconds at most. Returns the new hold of this handle, or a refusal.

        ``claim``: by default a new one. ``ask``: the flow that asks, by default in the local queue or in the store. A
        lease that ended before its grant arrived is released, and the flow asks again.
        """
        store, claim = self.store, claim or self.new_claim()
        start, late_grants = store.clock(), 0
        deadline = start + wait
        outcome: Lease | Refusal = Refusal(0.0)
        try:
            while True:
                outcome = yield from (ask or self._request)(claim, wait, deadline)
                now = store.clock()
                if isinstance(outcome, Refusal) or now < outcome.valid_until:
                    break
                late, outcome = outcome, Refusal(0.0)
                yield from self._release_late_grant(late, late_grants, deadline)
                late_grants += 1
                claim = claim._replace(token=new_token())
                if now >= deadline:
                    break
            if isinstance(outcome, Refusal):
                self._emit_refused(now - start, "taken", outcome.holder)
                return outcome
            hold = self.on_granted(outcome)
            hold.emit("acquired", waited=now - start)
            return hold
        except BaseException as error:
            if isinstance(error, LockError):
                if isinstance(error, LockUnavailable) and error.unconfirmed:  # the store may have granted the claim
                    renewal.release_later(store, self.primitive, claim, waited=True)
                self._emit_refused(store.clock() - start, refusal_reason(error))
            elif isinstance(outcome, Lease):  # interrupted after the grant: the caller does not learn of it
                self._abandon(outcome)
            else:  # interrupted or cancelled: the store may still grant the claim
                renewal.release_later(store, self.primitive, claim, waited=True)
            raise

    def _request(self, claim: Claim, wait: float, deadline: float) -> Flow[Lease | Refusal]:
        """Return the flow that asks for the lock: in the local queue if the caller may wait, otherwise in the store."""
        store, primitive = self.store, self.primitive
        gate = (store.local_queue_for(primitive) if wait > 0 else None) or store.algorithm
        flow = gate.acquire(primitive, claim, deadline)
        if wait == FOREVER and renewal.entries:  # without entries, this process holds no lock
            return check_nesting_flow(flow, self, claim)
        return flow

    def _release_late_grant(self, lease: Lease, late_grants: int, deadline: float) -> Flow[None]:
        """Release ``lease``, which had ended before its grant arrived, and pause before the next request.

        Raises ``LockUnavailable`` when no time is left to ask again, or after too many late grants.
        """
        store = self.store
        try:
            yield from store.algorithm.release(self.primitive, lease.claim)
        except BaseException:
            renewal.release_later(store, self.primitive, lease.claim)
            raise
        left = deadline - store.clock()
        if left <= 0 or late_grants + 1 == _LATE_GRANTS:
            raise LockUnavailable(self.name, f"the store answers more slowly than the ttl ({lease.claim.ttl:g} s)")
        yield Sleep(min(left, _PAUSE * 2**late_grants))

    def on_granted(self, lease: Lease) -> Hold:
        """Begin to hold ``lease``, and schedule its renewal. Returns the new hold."""
        hold = self.hold_type(self, lease)
        if self.several:
            with state_mutex:
                self._holds = [*self.holds, hold]
        else:
            for each in self._holds:  # another thread or task may have lost it, and perhaps not noticed
                each.replace()
            self._holds = [hold]
        hold.schedule_renewal()
        return hold

    def _abandon(self, lease: Lease) -> None:
        """Release ``lease``, which was granted to a caller that was interrupted, in the background."""
        for hold in self.holds:
            if hold.lease.claim.token == lease.claim.token:
                hold.end(End.TRANSFERRED)
        renewal.release_later(self.store, self.primitive, lease.claim, keep_until=lease.since + self.options.min_hold)

    def _emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        store, kind = self.store, self.primitive.kind
        if store.hook is not None:
            lock: Any = self
            report(store.hook, Event("refused", lock, self.name, store.alias, waited, 0.0, reason, holder, kind))

    # ── with blocks ──────────────────────────────────────────────────────────────────────────

    def enter_block(self, outcome: Hold | Refusal) -> None:
        """Begin a ``with`` block of the caller, which has acquired the hold ``outcome`` and releases it at the end.

        Raises ``LockNotAcquired`` for a refusal.
        """
        if isinstance(outcome, Refusal):
            raise refusal_error(self.name, outcome)
        self._blocks.append((outcome.acquired_by, outcome))

    def leave_flow(self) -> Flow[None]:
        """Return the flow that releases the hold of the ``with`` block that ends.

        The caller leaves its innermost block. A caller that has entered no block leaves the oldest block of the handle.
        If the hold of the block has ended, the caller's latest hold outside of blocks takes its place, if there is one:
        `threading.Condition.wait` releases and acquires again.
        """
        with state_mutex:
            blocks = self._blocks
            if not blocks:
                return self.release_flow()
            me = calling() if len(blocks) > 1 else None
            own = [index for index, (by, _) in enumerate(blocks) if by == me]
            hold = blocks.pop(own[-1] if own else 0)[1]
        if not hold.active:
            hold = self._latest_of(calling(), but=[each for _, each in blocks]) or hold
        return _nothing() if hold.end_kind is End.TRANSFERRED else self.release_flow(hold)

    # ── release, extend, describe ────────────────────────────────────────────────────────────

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        """End ``hold`` (``None``: that of the caller), and release the lock in the store or to a waiter of the process.

        Errors are those of `Lock.release`.
        """
        hold = hold or self.required_hold()
        if hold.end_kind is End.LOST:
            raise LockLost(self.name)
        held = self.store.clock() - hold.lease.since
        is_extending = lost = False
        try:
            hold.end_once()
            is_extending, lost = hold.is_extending, hold.lost
            gate = (None if lost else self.store.local_queue_for(self.primitive)) or self.store.algorithm
            released = yield from gate.release(self.primitive, hold.lease.claim, self.options.min_hold - held)
        except LockNotHeld:
            raise
        except BaseException as error:
            if hold.active:  # interrupted before the end
                raise
            hold.release_later()
            if not (lost and isinstance(error, LockError)):
                hold.emit("released", held=held, reason="unconfirmed")
                raise
            released = False
        finally:
            if is_extending:  # the extension may restore the lock on a server that had lost it
                left = hold.kept_until - self.store.clock()
                renewal.release_later(self.store, self.primitive, hold.lease.claim, after=max(_LATE_EXTENSION, left))
        if lost or not released:
            hold.report_loss(ENDED_BEFORE)
            raise LockLost(self.name)
        hold.emit("released", held=held)

    def extend_flow(self, ttl: Seconds | None) -> Flow[float]:
        """Extend the lease to ``ttl`` seconds from now (``None``: the ttl of the lock).

        Returns the remaining seconds.
        """
        return self.required_hold().extend_flow(ttl)

    def hand_off_flow(self, ttl: Seconds | None) -> Flow[str]:
        """Extend the lease to ``ttl`` seconds (``None``: the ttl of the lock), and stop holding it.

        Returns the text for the next holder. Errors are those of `Lock.hand_off`.
        """
        store, kind = self.store, self.primitive.kind
        check_hand_off(store, kind, self.name, self.options)
        hold = self.required_hold()
        yield from hold.extend_flow(ttl)
        claim: Claim | None = None
        try:
            lease = yield from hold.transfer_flow()
            claim = text_claim(lease, store.clock())
            hold.lease = granted = yield from give_flow(store, claim)
            hold.emit("released", held=store.clock() - lease.since, reason=HANDED_OFF)
            kept = granted.claim.token, self.options.ttl, lease.fencing_token
            return HandedOff(store.alias, store.key_prefix, self.names_of(lease), kind == "multilock", *kept).text()
        except BaseException:  # the caller gets no text
            if claim is not None:  # either the hold or the text may have the lock
                hold.end_kind = End.LOST
                hold.release_later()
                renewal.release_later(store, self.primitive, claim, waited=True)
                hold.report_loss(NOT_HANDED_OFF)
            raise

    def adopt_flow(self, handed: HandedOff) -> Flow[None]:
        """Take the lock over from the handle whose ``hand_off()`` made ``handed``, until the first ``with`` block ends.

        Raises ``LockLost`` if the lease that was handed off has ended or was adopted before, and ``LockUnavailable``.
        """
        outcome = yield from self.acquire_flow(0.0, ask=partial(adopt_request, self.store, handed))
        if isinstance(outcome, Refusal):
            raise LockLost(self.name, "the lease that was handed off has ended, or was adopted before")
        self._unentered = outcome

    def begin_block(self) -> bool:
        """Let the caller's ``with`` block use the adopted hold, if this is the first block since `adopt_flow`.

        Returns ``False`` for other blocks, and if that hold has ended. Raises ``LockLost`` if its lease is lost.
        """
        hold, self._unentered = self._unentered, None
        if hold is None or not hold.active:
            return False
        hold.check()
        self._blocks.append((calling(), hold))
        return True

    def names_of(self, lease: Lease) -> tuple[str, ...]:
        """Return the names that ``lease`` holds."""
        return (self.name,)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """Return the lock as the store shows it; ``None`` when the lock is free."""
        return self.store.algorithm.describe(self.name, self.keys)

    def is_ours(self, info: LockInfo | None) -> bool:
        """Return whether ``info``, a description by the store, shows `hold`."""
        hold = self.hold
        return hold is not None and hold.active and info is not None and info.matches(hold.lease)


def _nothing() -> Flow[None]:
    yield from ()


def refusal_error(name: str, refusal: Refusal, what: str | None = None) -> LockNotAcquired:
    """Return the error for ``refusal``. ``what``: the message, by default that the lock is held, and who holds it."""
    owner = Owner.parse(refusal.holder) if refusal.holder else None
    if what is None:
        what = "was done in this period" if owner and owner.extra.get("state") == "done" else "is held"
        what += f" by {owner}" if owner else ""
    retry_after = None if refusal.remaining == FOREVER else refusal.remaining
    return LockNotAcquired(name, what, retry_after, owner)
