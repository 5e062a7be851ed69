"""A Redis Cluster's word: as one node's, but locks that are taken together may be in different slots.

No script could take them all then. They are taken slot by slot, in the same order by everybody; who finds one taken
gives back what it has, and waits holding nothing. So nobody waits for one who waits. And of those who try for some of
the same locks at once, the one that has come furthest meets nobody but a holder: somebody always gets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import LockError
from ..guard import served
from ..keys import Keys, hash_tag
from ..lease import Claim, Lease, Refusal
from ..primitives import Primitive
from ..replies import outcome_of, trouble
from ..requests import Batch, Fault, Flow, Signal
from .single import LAST_TRY, SingleNode, ask, block, outlasting, prolonging, unlisted


def by_slot(claim: Claim) -> list[Claim]:
    """The claim, a part for each hash tag, in the order in which everybody takes them."""
    if not claim.every:
        return [claim]
    tags: dict[bytes, list[Keys]] = {}
    for place in claim.places:
        tags.setdefault(hash_tag(place.lock), []).append(place)
    return [claim._replace(keys=places[0], others=tuple(places[1:])) for _, places in sorted(tags.items())]


def by_lock(claim: Claim) -> list[Claim]:
    """The claim, a part for each lock: requests of one key are served also while the slot moves to another server."""
    return [claim._replace(keys=place, others=()) for place in claim.places] if claim.every else [claim]


class Scattered(SingleNode):
    """The rule for a Redis Cluster."""

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """`SingleNode.acquire`; of several slots all or none."""
        if len(by_slot(claim)) == 1:
            return (yield from super().acquire(primitive, claim, deadline))
        wait, listed, waited = primitive.queue if deadline > self.clock() else 0, -1, False
        loose: list[Claim] = []

        def attempt() -> Flow[Lease | tuple[int, Refusal] | Fault]:
            nonlocal claim
            claim = claim.again()  # what was undone must not be asked for again
            return (yield from self._round(primitive, claim, wait, loose))

        while True:
            outcome = yield from attempt()
            if isinstance(outcome, Fault) and (waited or outcome.moving):
                outcome = yield from outlasting(self.clock, deadline, outcome, attempt)
            if isinstance(outcome, Fault):
                raise trouble(claim.name, outcome)
            if isinstance(outcome, Lease):
                return outcome
            which, refusal = outcome
            parts, left = by_slot(claim), deadline - self.clock()
            if listed not in (-1, which):
                yield from ask(primitive.leave(parts[listed]))
            listed = which
            if left <= 0:
                return refusal
            if unlisted(wait, left):
                wait = -primitive.queue
                continue
            pause = min(left, refusal.remaining + 0.001, primitive.patience)
            signal, *more = primitive.signals(parts[which], refusal)
            yield from block(claim.name, Signal(signal, pause, more=more), left)
            wait, waited = LAST_TRY if pause == left else -primitive.queue, True

    def _round(
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
            reply = served((yield from ask(self._take(primitive, part, wait))))
            outcome = reply if isinstance(reply, Fault) else outcome_of(part, reply, start)
            if isinstance(outcome, Lease):
                leases.append(outcome)
                continue
            undone = parts[: len(leases)]
            if isinstance(outcome, Fault):
                loose.append(part)
            elif outcome.holder.encode() == claim.owner:
                undone = [*undone, *loose]  # each by its own token: this may arrive when a later attempt has got it
            if undone:
                replies = yield Batch([primitive.free(each) for each in undone])
                silent = [each for each, reply in zip(undone, replies, strict=True) if isinstance(reply, Fault)]
                loose += [each for each in silent if each not in loose]
            return outcome if isinstance(outcome, Fault) else (len(leases), outcome)
        together = yield from self._together(primitive, claim, parts, leases)
        loose += parts if isinstance(together, Fault) else ()
        return together

    def _together(
        self, primitive: Primitive, claim: Claim, parts: Sequence[Claim], leases: Sequence[Lease]
    ) -> Flow[Lease | Fault]:
        """One lease in place of all: it is as old as the oldest, and of the fencing tokens the largest is for all."""
        token = max(lease.fencing_token for lease in leases)
        if claim.fencing:
            replies = yield Batch([primitive.remember(part, token) for part in parts])
            if faults := [reply for reply in replies if isinstance(reply, Fault)]:
                yield Batch([primitive.free(part) for part in parts])
                return faults[0]
        return leases[0]._replace(claim=claim, fencing_token=token)

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """The lease with ``ttl`` from now on, or ``None`` when it is lost. Raises ``LockUnavailable``."""
        (outcome,) = yield from self.extend_many(primitive, [(lease, ttl)])
        if isinstance(outcome, Fault):
            raise trouble(lease.claim.name, outcome)
        return outcome

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """The same for many at once: lost when it is in one of the slots, unknown when one of them can't be asked."""
        start = self.clock()
        parts = [by_lock(lease.claim) if start < lease.valid_until else [] for lease, _ in leases]
        runs = [
            prolonging(primitive, lease._replace(claim=part), ttl, start)
            for (lease, ttl), those in zip(leases, parts, strict=True)
            for part in those
        ]
        replies = iter((yield Batch(runs)) if runs else ())
        outcomes: list[Lease | Fault | None] = []
        for (lease, ttl), those in zip(leases, parts, strict=True):
            told = [next(replies) for _ in those]
            lost = not told or any(reply in (0, -1) for reply in told)
            fault = next((reply for reply in told if isinstance(reply, Fault)), None)
            outcomes.append(None if lost else fault or lease.prolonged(start, ttl))
        return outcomes

    def withdraw(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """`release` for one that may have waited."""
        yield Batch([primitive.leave(part) for part in by_slot(claim)])
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
