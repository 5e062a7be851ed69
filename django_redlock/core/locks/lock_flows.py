"""The flows of a lock handle (acquire, release, extend and describe), shared by threads and asyncio."""

from __future__ import annotations

from functools import partial

from ...errors import LockError, LockLost, LockNotSupported, LockUnavailable
from ..flow.replies import refusal_reason
from ..flow.requests import Fault, Flow, Sleep
from ..lease_transfer import HANDED_OFF, HandedOff
from ..lock_info import LockInfo
from ..owner import describe_owner
from ..primitives.base import Primitive
from ..primitives.periodic import periodic_claim
from ..process import fork
from ..process.mutex import state_mutex
from ..renewal.registry import renewal
from ..values import Claim, Lease, Refusal, Seconds, new_token
from .renewed_lease import RenewedLease
from .self_deadlock import before_waiting, check_nesting
from .with_blocks import LOST_TOKEN, NO_TOKEN

FOREVER = float("inf")
_LATE_GRANTS = 5  # number of leases that ended before their grant arrived, at which `acquire` raises
_PAUSE = 0.01  # seconds after the first late grant, doubled after each further one
_ADOPTABLE = {"mutex", "striped", "multilock", "timestamp"}  # kinds of locks with one holder
_ENDED_BEFORE = "before the release, the lease had ended or the lock was released by force"
_NOT_HANDED_OFF = "the store did not confirm the hand-off"
_UNANSWERED = Fault(TimeoutError("whether it was extended is unknown"))


def _release_nothing() -> Flow[None]:
    yield from ()


class LockFlows(RenewedLease):
    """The flows behind the methods of a `Lock`. A flow is a generator that yields requests and returns the result."""

    def new_claim(self) -> Claim:
        """Return the claim for the next acquisition, with a new token."""
        options = self.options
        facts = self.primitive.facts
        if options.max_hold is not None:
            facts += (("max_hold", options.max_hold),)
        owner, asked = describe_owner(options.owner, options.ttl, facts), self.store.clock()
        claim = Claim(
            self.name,
            (self.keys,),
            new_token(),
            owner,
            options.ttl,
            options.fencing,
            asked=asked,
        )
        return periodic_claim(claim, options.every) if options.every else claim

    def acquire_flow(self, wait: float) -> Flow[Lease | Refusal]:
        """Ask for the lock for ``wait`` seconds at most. Returns the lease, which this handle now holds, or a refusal.

        A lease that ended before its grant arrived is released, and the flow asks again.
        """
        store, claim = self.store, self.new_claim()
        start, late_grants = store.clock(), 0
        deadline = start + wait
        outcome: Lease | Refusal = Refusal(0.0)
        try:
            while True:
                outcome = yield from self._request(claim, wait, deadline)
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
                self._emit("refused", waited=now - start, reason="taken", holder=outcome.holder)
            else:
                self.on_granted(outcome)
                if self._blocks:
                    self._blocks.reacquired(outcome.claim.token)
                self._emit("acquired", claim.owner, waited=now - start)
            return outcome
        except BaseException as error:
            if isinstance(error, LockError):
                if isinstance(error, LockUnavailable) and error.unconfirmed:  # the store may have granted the claim
                    renewal.release_later(store, self.primitive, claim, waited=True)
                self._emit("refused", waited=store.clock() - start, reason=refusal_reason(error))
            elif isinstance(outcome, Lease):  # interrupted after the grant: the caller does not learn of it
                self._lease, self._generation = outcome, fork.generation
                self._at_fork_reinit()
            else:  # interrupted or cancelled: the store may still grant the claim
                renewal.release_later(store, self.primitive, claim, waited=True)
            raise

    def _request(self, claim: Claim, wait: float, deadline: float) -> Flow[Lease | Refusal]:
        """Return the flow that asks for the lock: in the local queue if the caller may wait, otherwise in the store.

        ``wait``: seconds. ``deadline``: the end of the wait in monotonic seconds.
        """
        store, primitive = self.store, self.primitive
        gate = (store.local_queue_for(primitive) if wait > 0 else None) or store.algorithm
        flow = gate.acquire(primitive, claim, deadline)
        if wait == FOREVER and renewal.entries:  # without entries, this process holds no lock
            flow = before_waiting(flow, partial(check_nesting, self, claim))
        return flow

    def _release_late_grant(self, lease: Lease, late_grants: int, deadline: float) -> Flow[None]:
        """Release ``lease``, which had ended before its grant arrived, and pause before the next request.

        ``late_grants``: the late grants so far. ``deadline``: monotonic seconds. Raises ``LockUnavailable`` when no
        time is left to ask again, or after too many late grants.
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

    # ── release, extend, describe ────────────────────────────────────────────────────────────

    def release_flow(self, token: bytes | None = None) -> Flow[None]:
        """Stop holding the lease, and release it in the store or hand it over within the process.

        If ``token`` is not ``None``, releases only a lease with that token, and raises ``LockLost`` for any other.
        Errors are those of `Lock.release`.
        """
        store, primitive, before = self.store, self.primitive, self._lease
        try:
            ended = self.end_lease(token)
            lease, extension = ended.lease, ended.extension
            owner, held = lease.claim.owner, store.clock() - lease.since
        except BaseException as error:
            if before is not None and self._lease is None and not isinstance(error, LockError):  # interrupted
                renewal.release_later(store, primitive, before.claim, keep_until=self._kept_until(before))
            raise
        try:
            gate = (None if ended.lost else store.local_queue_for(primitive)) or store.algorithm
            released = yield from gate.release(primitive, lease.claim, self.options.min_hold - held)
        except BaseException as error:
            renewal.release_later(store, primitive, lease.claim, keep_until=self._kept_until(lease))
            if not (ended.lost and isinstance(error, LockError)):
                self._emit("released", owner, held=held, reason="unconfirmed")
                raise
            released = False
        finally:
            if extension is not None:
                self._release_after_both(extension)
        if ended.lost or not released:
            with state_mutex:
                self._lost = self._lost or self._lease is None  # else another thread has acquired the lock meanwhile
            self._emit_lost(_ENDED_BEFORE, lease)
            raise LockLost(self.name)
        self._emit("released", owner, held=held)

    def extend_flow(self, ttl: Seconds | None) -> Flow[float]:
        """Extend the lease to ``ttl`` seconds from now (``None``: the ttl of the lock).

        Returns the remaining seconds.
        """
        wanted = self.options.ttl if ttl is None else self.store.check_ttl(ttl)
        extension = yield from self.begin_extension_flow(wanted)
        try:
            outcome = yield from self.store.algorithm.extend(self.primitive, extension.lease, extension.ttl)
        except BaseException:
            self.on_extended(extension, _UNANSWERED)
            raise
        self.on_extended(extension, outcome)
        self.check()
        return self.remaining

    def hand_off_flow(self, ttl: Seconds | None) -> Flow[str]:
        """Extend the lease to ``ttl`` seconds (``None``: the ttl of the lock), and stop holding it.

        Returns the text for the next holder. Errors are those of `Lock.hand_off`.
        """
        store, options = self.store, self.options
        if self.primitive.kind not in _ADOPTABLE:
            kinds = "only a lock with one holder: lock(), a stripe or a multilock"
            raise LockNotSupported(self.name, f"a {self.primitive.kind} can't be handed off, {kinds}")
        if options.every:
            raise LockNotSupported(self.name, "a lock with every= can't be handed off")
        if store.adopting is None:
            raise LockNotSupported(self.name, f"{type(store).__name__} can't hand a lock off: {store.not_adopting}")
        before = self._require_lease()
        token = before.claim.token
        yield from self.extend_flow(ttl)
        claim: Claim | None = None
        try:
            lease = yield from self.hand_over_flow(token)
            claim = self._text_claim(lease)
            granted = yield from self.give_to_text_flow(store.adopting, claim)
            self._blocks.replace(token, NO_TOKEN)
            held = store.clock() - lease.since
            self._emit("released", claim.owner, held=held, reason=HANDED_OFF)
            names, is_multilock = self._names(lease), self.primitive.kind == "multilock"
            kept = granted.claim.token, options.ttl, lease.fencing_token
            return HandedOff(store.alias, store.key_prefix, names, is_multilock, *kept).text()
        except BaseException as error:  # the caller gets no text
            if claim is not None:
                self._fail_hand_off(before, claim, error)
            elif self._lease is None and not isinstance(error, LockError):  # interrupted
                renewal.release_later(store, self.primitive, before.claim, keep_until=self._kept_until(before))
            raise

    def _fail_hand_off(self, before: Lease, claim: Claim, error: BaseException) -> None:
        """Release the lock in the background, because either ``before`` or the text's ``claim`` may hold it.

        ``before``: the lease that was to be handed off. The loss is reported unless ``error`` is an interrupt.
        """
        renewal.release_later(self.store, self.primitive, before.claim, keep_until=self._kept_until(before))
        renewal.release_later(self.store, self.primitive, claim, waited=True)
        self._blocks.replace(before.claim.token, LOST_TOKEN)
        if isinstance(error, LockError):
            with state_mutex:
                self._lost = self._lost or self._lease is None
            self._emit_lost(_NOT_HANDED_OFF, before)

    def _text_claim(self, lease: Lease) -> Claim:
        """Return a claim with a new token, which takes over ``lease`` for the text of a hand-off.

        The text must not have the token of the handle's acquire request. A late copy of that request would grant the
        lock to this token once more after its release.
        """
        return lease.claim._replace(
            token=new_token(),
            owner=lease.claim.owner_since(lease.since),
            ttl=lease.ttl,
            fencing=False,
            payload=lease.claim.token,
            all_keys=lease.claim.all_keys if lease.claim.require_all else lease.claim.all_keys[:1],
            asked=self.store.clock(),
        )

    def give_to_text_flow(self, adopting: Primitive, claim: Claim) -> Flow[Lease]:
        """Transfer the lease to ``claim``, the claim of a text, and return the lease of the text.

        Raises ``LockLost`` if this handle does not hold the lock in the store, and ``LockUnavailable``.
        """
        outcome = yield from self.store.algorithm.acquire(adopting, claim, 0.0)
        if isinstance(outcome, Refusal):
            raise LockLost(self.name)
        return outcome

    def _names(self, lease: Lease) -> tuple[str, ...]:
        """Return the names that ``lease`` holds."""
        return (self.name,)

    def _leave_block_flow(self) -> Flow[None]:
        """Return the flow that releases the lease of the ``with`` block that ends.

        It does nothing if the block has no lease. Raises ``LockLost`` if its lease was lost and replaced.
        """
        token = self._blocks.leave()
        if token == LOST_TOKEN:
            raise LockLost(self.name)
        return self.release_flow(token) if token != NO_TOKEN else _release_nothing()

    def describe_flow(self) -> Flow[LockInfo | None]:
        """Return the lock as the store shows it; ``None`` when the lock is free."""
        return self.store.algorithm.describe(self.name, self.keys)

    def _is_ours(self, info: LockInfo | None) -> bool:
        lease = self.current_lease()
        return lease is not None and info is not None and info.matches(lease)
