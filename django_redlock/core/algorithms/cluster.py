"""A Redis Cluster's word: as one node's, but locks that are taken together may be in different slots.

No script could take them all then. They are taken slot by slot, in the same order by everybody; who finds one taken
gives back what it has, and waits holding nothing. So nobody waits for one who waits. And of those who try for some of
the same locks at once, the one that has come furthest meets nobody but a holder: somebody always gets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LockError
from ..flow.replies import fault_error, read_outcome
from ..flow.requests import Batch, Block, Fault, Flow
from ..keys import Keys, hash_tag
from ..primitives.base import Primitive
from ..values import Claim, Lease, Refusal
from .quarantine import unwrap_reply
from .single_node import LAST_TRY, SingleNode, block, extend_request, must_requeue, retry_until_served, run_idempotent


def by_slot(claim: Claim) -> list[Claim]:
    """The claim, a part for each hash tag, in the order in which everybody takes them."""
    if not claim.require_all:
        return [claim]
    tags: dict[bytes, list[Keys]] = {}
    for place in claim.all_keys:
        tags.setdefault(hash_tag(place.lock), []).append(place)
    return [claim._replace(keys=places[0], more_keys=tuple(places[1:])) for _, places in sorted(tags.items())]


def by_lock(claim: Claim) -> list[Claim]:
    """The claim, a part for each lock: requests of one key are served also while the slot moves to another server."""
    return [claim._replace(keys=place, more_keys=()) for place in claim.all_keys] if claim.require_all else [claim]


class Cluster(SingleNode):
    """The rule for a Redis Cluster."""

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """`SingleNode.acquire`; of several slots all or none."""
        if len(by_slot(claim)) == 1:
            return (yield from super().acquire(primitive, claim, deadline))
        wait, listed, waited = primitive.waiter_ttl_ms if deadline > self.clock() else 0, -1, False
        loose: list[Claim] = []

        def attempt() -> Flow[Lease | tuple[int, Refusal] | Fault]:
            nonlocal claim
            claim = claim.next_attempt(self.clock())  # a cancelled attempt must not be repeated
            return (yield from self._try_all_slots(primitive, claim, wait, loose))

        while True:
            outcome = yield from attempt()
            if isinstance(outcome, Fault) and (waited or outcome.migrating):
                outcome = yield from retry_until_served(self.clock, deadline, outcome, attempt)
            if isinstance(outcome, Fault):
                raise fault_error(claim.name, outcome)
            if isinstance(outcome, Lease):
                return outcome
            which, refusal = outcome
            parts, left = by_slot(claim), deadline - self.clock()
            if listed not in (-1, which):
                yield from run_idempotent(primitive.dequeue_request(parts[listed]))
            listed = which
            if left <= 0:
                return refusal
            if must_requeue(wait, left):
                wait = -primitive.waiter_ttl_ms
                continue
            pause = min(left, refusal.remaining + 0.001, primitive.max_block)
            signal, *more = primitive.wake_keys(parts[which], refusal)
            yield from block(claim.name, Block(signal, pause, more_keys=more), left)
            wait, waited = LAST_TRY if pause == left else -primitive.waiter_ttl_ms, True

    def _try_all_slots(
        self, primitive: Primitive, claim: Claim, wait: int, loose: list[Claim]
    ) -> Flow[Lease | tuple[int, Refusal] | Fault]:
        """Ask one slot after another; when one refuses, or can't be asked, what was got is given back.

        Refused: which slot it is, and its refusal. ``loose``: what attempts may have got without having heard of it, or
        without having heard that it is free again.
        """
        leases: list[Lease] = []
        parts = by_slot(claim)
        for part in parts:
            start = self.clock()
            reply = unwrap_reply((yield from run_idempotent(self._acquire_request(primitive, part, wait))))
            outcome = reply if isinstance(reply, Fault) else read_outcome(part, reply, start)
            if isinstance(outcome, Lease):
                leases.append(outcome)
                continue
            undone = parts[: len(leases)]
            if isinstance(outcome, Fault):
                loose.append(part)
            elif outcome.holder.encode() == claim.owner:
                undone = [*undone, *loose]  # each by its own token: this may arrive when a later attempt has got it
            if undone:
                replies = yield Batch([primitive.release_request(each) for each in undone])
                silent = [each for each, reply in zip(undone, replies, strict=True) if isinstance(reply, Fault)]
                loose += [each for each in silent if each not in loose]
            return outcome if isinstance(outcome, Fault) else (len(leases), outcome)
        together = yield from self._one_lease(primitive, claim, parts, leases)
        loose += parts if isinstance(together, Fault) else ()
        return together

    def _one_lease(
        self, primitive: Primitive, claim: Claim, parts: Sequence[Claim], leases: Sequence[Lease]
    ) -> Flow[Lease | Fault]:
        """One lease in place of all: it is as old as the oldest, and of the fencing tokens the largest is for all."""
        token = max(lease.fencing_token for lease in leases)
        if claim.fencing:
            replies = yield Batch([primitive.fencing_request(part, token) for part in parts])
            if faults := [reply for reply in replies if isinstance(reply, Fault)]:
                yield Batch([primitive.release_request(part) for part in parts])
                return faults[0]
        return leases[0]._replace(claim=claim, fencing_token=token)

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """The lease with ``ttl`` from now on, or ``None`` when it is lost. Raises ``LockUnavailable``."""
        (outcome,) = yield from self.extend_many(primitive, [(lease, ttl)])
        if isinstance(outcome, Fault):
            raise fault_error(lease.claim.name, outcome)
        return outcome

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """The same for many at once: lost when it is in one of the slots, unknown when one of them can't be asked."""
        start = self.clock()
        parts = [by_lock(lease.claim) if start < lease.valid_until else [] for lease, _ in leases]
        runs = [
            extend_request(primitive, lease._replace(claim=part), ttl)
            for (lease, ttl), those in zip(leases, parts, strict=True)
            for part in those
        ]
        replies = iter((yield Batch(runs)) if runs else ())
        outcomes: list[Lease | Fault | None] = []
        for (lease, ttl), those in zip(leases, parts, strict=True):
            told = [next(replies) for _ in those]
            lost = not told or any(reply in (0, -1) for reply in told)
            fault = next((reply for reply in told if isinstance(reply, Fault)), None)
            outcomes.append(None if lost else fault or lease.extended(start, ttl))
        return outcomes

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """`release` for one that may have waited."""
        yield Batch([primitive.dequeue_request(part) for part in by_slot(claim)])
        return (yield from self.release(primitive, claim.all_attempts()))

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Free all of its locks; whether each was still held. Raises ``LockUnavailable``."""
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
