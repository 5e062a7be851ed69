"""The algorithm for a Redis Cluster: as on one node, but the locks of a multilock may be in different slots.

A script can't acquire locks in several slots. Every client acquires the locks slot by slot in the same order. A client
that is refused in one slot releases its locks in the other slots before it waits, so there is no deadlock. If several
clients try at the same time, one of them succeeds: the client that has come furthest in the order can be refused only
by a client that already holds all its locks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LockError
from ..flow.replies import fault_error, read_outcome
from ..flow.requests import Batch, Fault, Flow
from ..keys import Keys, hash_tag
from ..primitives.base import Primitive
from ..values import Claim, Lease, OnRefusal, Refusal, Wait
from .retries import await_turn, release_lost, retry_until_served, run_idempotent
from .single_node import SingleNode


def by_slot(claim: Claim) -> list[Claim]:
    """Return ``claim`` split into one claim for each hash tag, in the order in which all clients acquire them."""
    if not claim.require_all:
        return [claim]
    tags: dict[bytes, list[Keys]] = {}
    for keys in claim.all_keys:
        tags.setdefault(hash_tag(keys.lock), []).append(keys)
    return [claim._replace(all_keys=tuple(keys)) for _, keys in sorted(tags.items())]


def by_lock(claim: Claim) -> list[Claim]:
    """Return ``claim`` split into one claim for each lock, if it is for a multilock; otherwise ``claim`` alone.

    A Cluster that is moving a slot refuses requests with several keys.
    """
    return [claim._replace(all_keys=(keys,)) for keys in claim.all_keys] if claim.require_all else [claim]


class Cluster(SingleNode):
    """The algorithm for a Redis Cluster."""

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        """Acquire like `SingleNode.acquire`. If the locks are in several slots, all of them are acquired or none.

        ``deadline``: monotonic seconds. Returns the lease or a refusal. Raises ``LockUnavailable``.
        """
        if len(by_slot(claim)) == 1:
            return (yield from super().acquire(primitive, claim, deadline, on_refusal))
        wait, listed, waited = Wait.QUEUE if deadline > self.clock() else Wait.NO, -1, False
        lost: list[Claim] = []

        def attempt() -> Flow[Lease | tuple[int, Refusal] | Fault]:
            nonlocal claim
            claim = claim.next_attempt(self.clock())  # a late release of the last attempt must not release this one
            return (yield from self._try_all_slots(primitive, claim, wait, lost))

        while True:
            outcome = yield from attempt()
            if isinstance(outcome, Fault) and (waited or outcome.migrating):
                outcome = yield from retry_until_served(self.clock, deadline, outcome, attempt)
            if isinstance(outcome, Fault):
                raise fault_error(claim.name, outcome._replace(unconfirmed=bool(lost)))
            if isinstance(outcome, Lease):
                return outcome
            index, refusal = outcome
            parts, left = by_slot(claim), deadline - self.clock()
            if listed not in (-1, index):
                yield from run_idempotent(primitive.dequeue_request(parts[listed]))
            listed = index
            if left <= 0:
                if wait.listed:
                    yield from run_idempotent(primitive.dequeue_request(parts[index]))
                return refusal
            if on_refusal is not None:
                on_refusal(refusal)
            wait, waited = (yield from await_turn(primitive, parts[index], refusal, wait, left)), True

    def _try_all_slots(
        self, primitive: Primitive, claim: Claim, wait: Wait, lost: list[Claim]
    ) -> Flow[Lease | tuple[int, Refusal] | Fault]:
        """Acquire slot by slot. If a slot refuses, or its server does not reply, release the slots acquired so far.

        Returns the lease, a `Fault` if the server of a slot does not reply, or a pair: the index of the slot that
        refused, and the refusal. ``wait``: see `Primitive.acquire_request`. ``lost``: a list that all attempts share.
        This method appends each claim for a single slot that may be granted although no reply has arrived. When a slot
        refuses, the claims in ``lost`` are released, too, because one of them may be in the way.
        """
        leases: list[Lease] = []
        parts = by_slot(claim)
        for part in parts:
            start = self.clock()
            reply = yield from self._ask(primitive, part, wait)
            outcome = reply if isinstance(reply, Fault) else read_outcome(part, reply, start)
            if isinstance(outcome, Lease):
                leases.append(outcome)
                continue
            undone = parts[: len(leases)]
            if isinstance(outcome, Fault):
                lost += [part] if outcome.unconfirmed else []
            else:
                undone, lost[:] = [*undone, *lost], ()
            yield from release_lost(primitive, undone)
            lost += undone
            return outcome if isinstance(outcome, Fault) else (len(leases), outcome)
        lease = yield from self._one_lease(primitive, claim, parts, leases)
        lost += parts if isinstance(lease, Fault) else ()
        return lease

    def _one_lease(
        self, primitive: Primitive, claim: Claim, parts: Sequence[Claim], leases: Sequence[Lease]
    ) -> Flow[Lease | Fault]:
        """Return one lease for all slots, with the earliest end and the largest fencing token of ``leases``.

        With fencing, the token is first stored in every slot. If the server of a slot does not reply to this request,
        all slots are released, and the `Fault` is returned.
        """
        token = max((lease.fencing_token for lease in leases if lease.fencing_token), default=None)
        if token is not None:
            replies = yield Batch([primitive.fencing_request(part, token) for part in parts])
            if faults := [reply for reply in replies if isinstance(reply, Fault)]:
                yield Batch([primitive.release_request(part) for part in parts])
                return faults[0]
        return leases[0]._replace(claim=claim, fencing_token=token)

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """Extend many leases in one batch. ``leases``: pairs of a lease and its new ttl in seconds.

        Returns for each lease: the extended lease, ``None`` if the lease is lost in any slot, or a `Fault` if the
        server of a slot does not reply.
        """
        start = self.clock()
        parts = [by_lock(lease.claim) if start < lease.valid_until else [] for lease, _ in leases]
        runs = [
            primitive.extend_request(part, ttl)
            for (lease, ttl), own_parts in zip(leases, parts, strict=True)
            for part in own_parts
        ]
        replies = iter((yield Batch(runs)) if runs else ())
        outcomes: list[Lease | Fault | None] = []
        for (lease, ttl), own_parts in zip(leases, parts, strict=True):
            own_replies = [next(replies) for _ in own_parts]
            lost = not own_replies or any(reply in (0, -1) for reply in own_replies)
            fault = next((reply for reply in own_replies if isinstance(reply, Fault)), None)
            outcomes.append(None if lost else fault or lease.extended(start, ttl))
        return outcomes

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """Remove ``claim`` from the waiters, and release all its locks if any attempt of ``claim`` was granted.

        Returns whether the claim held all its locks. Raises ``LockUnavailable``.
        """
        yield Batch([primitive.dequeue_request(part) for part in by_slot(claim)])
        return (yield from self.release(primitive, claim.all_attempts()))

    def cancel_many(self, claims: Sequence[tuple[Primitive, Claim]]) -> Flow[list[bool]]:
        """Cancel many claims like `SingleNode.cancel_many`. Skips a claim whose locks are in several slots.

        Returns for each claim whether the server has served the requests; ``False`` for a claim that was skipped.
        """
        served = iter((yield from super().cancel_many([each for each in claims if len(by_slot(each[1])) == 1])))
        return [len(by_slot(claim)) == 1 and next(served) for _, claim in claims]

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Release all locks of ``claim``. Raises ``LockUnavailable``. Returns whether the claim held all its locks.

        ``keep``: seconds for which the locks stay taken.
        """
        parts = by_lock(claim)
        if len(parts) == 1:
            return (yield from super().release(primitive, claim, keep))
        held, errors = True, []
        for part in parts:
            try:
                held = (yield from super().release(primitive, part.all_attempts(), keep)) and held
            except LockError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return held
