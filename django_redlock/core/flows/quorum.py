"""A majority's word counts: Redlock over N independent nodes (Redis documentation, "The Redlock Algorithm")."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...errors import LockError, LockUnavailable
from ..guard import Guard, served
from ..held import Held, read_held
from ..keys import Keys
from ..lease import Claim, Lease, Refusal
from ..primitives import Primitive
from ..pulse import Moment, pulse
from ..replies import Quarantined, misused, nonsense, outcome_of, trouble, unavailable, understood
from ..requests import Batch, Fault, Flow, Run, Signal, Sleep, Together
from ..scripts import script
from .merging import merged
from .single import LAST_TRY, confirmed, putting_back, reseeding, unlisted
from .votes import Taken, acquire_decided, agreed, taken, votes_needed

BACKOFF = 0.005, 0.05  # seconds, at random: clients that split the vote must not split it again in step
_DESCRIBE = script("describe")


def _sent(replies: Sequence[Any]) -> bool:
    """Nobody waits for the answers."""
    del replies
    return True


def _all(replies: Sequence[Any]) -> bool:
    return None not in replies


class Quorum(NamedTuple):
    """The rule for N independent nodes. ``shuffle`` draws the pause after a split vote; ``labels`` name the nodes."""

    nodes: int
    clock: Callable[[], float]
    guard: Guard | None = None
    shuffle: Callable[[float, float], float] = random.uniform
    labels: Sequence[str] = ()

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Ask all nodes, and while refused wait for a wake-up or a random while, until ``deadline``.

        Raises ``LockUnavailable`` with every node's error when a majority can't be asked.
        """
        wait = primitive.queue if deadline > self.clock() else 0
        for tries in itertools.count():
            claim = claim.again()
            outcome = yield from self._attempt(primitive, claim, wait)
            left = deadline - self.clock()
            if isinstance(outcome, Lease):
                return outcome
            if left <= 0:
                return outcome.refusal
            if outcome.signal is not None and unlisted(wait, left):
                wait = -primitive.queue
            else:
                wait = yield from self._pause(primitive, claim, outcome, left, tries)
        raise AssertionError

    def _attempt(self, primitive: Primitive, claim: Claim, wait: int) -> Flow[Lease | Taken]:
        need = votes_needed(self.nodes, primitive.limit)
        start = self.clock()
        asks = self._everywhere(self._take(primitive, claim, wait))
        replies = yield Together(asks, lambda got: acquire_decided(got, need), claim.family)
        outcomes = [_outcome(claim, reply, start) for reply in replies]
        self._count_quarantined(outcomes)
        grants, strays = agreed([(node, each) for node, each in enumerate(outcomes) if isinstance(each, Lease)])
        if len(grants) >= need:
            token = max(each.fencing_token for each in grants)
            answered = tuple(node for node, each in enumerate(outcomes) if isinstance(each, Lease | Refusal))
            lease = grants[0]._replace(fencing_token=token, nodes=answered)
            if strays:  # votes for others of several locks
                yield Together([primitive.free(each.claim, node=node) for node, each in strays], _sent, claim.family)
            if not claim.fencing or (yield from self._remember(primitive, lease.claim, token, need)):
                return lease._replace(claim=lease.claim.beside(claim))
        # On all nodes, also those that refused or did not answer: a vote that nobody counts would stand for a ttl.
        yield Together(self._everywhere(primitive.free(claim)), _sent, claim.family)
        faults = {node: each for node, each in enumerate(outcomes) if isinstance(each, Fault)}
        if len(faults) > self.nodes - need or (len(grants) >= need and claim.fencing):
            raise self._no_quorum(claim.name, faults)
        any_one = bool(claim.others) and not claim.every
        return taken(outcomes, need, any_one=any_one, several=primitive.limit > 1 or primitive.mode != "")

    def _count_quarantined(self, outcomes: Sequence[Any]) -> None:
        """A node that makes no grants now is no trouble, and somebody should know of it."""
        for node, each in enumerate(outcomes):
            if type(each) is Fault and isinstance(each.error, Quarantined):
                pulse.put(Moment(time.time(), "fault", self._label(node), reason="quarantine"))

    def _take(self, primitive: Primitive, claim: Claim, wait: int) -> Run:
        run = primitive.take(claim, wait)
        return self.guard.over(run) if self.guard else run

    def _touch(self, node: int) -> list[Run]:
        """A node that doesn't have the lock may have forgotten others as well."""
        return [self.guard.touch(node)] if self.guard else []

    def _everywhere(self, run: Run) -> list[Run]:
        return [run.at(node) for node in range(self.nodes)]

    def _remember(self, primitive: Primitive, claim: Claim, token: int, need: int) -> Flow[bool]:
        """Write the fencing token back to a majority, so that the next majority, whatever it is, knows of it."""
        asks = self._everywhere(primitive.remember(claim, token))
        replies = yield Together(asks, lambda got: got.count(1) >= need or None not in got, claim.family)
        return bool(replies.count(1) >= need)

    def _pause(self, primitive: Primitive, claim: Claim, refused: Taken, left: float, tries: int) -> Flow[int]:
        """Wait for a holder's release, or after a split vote a random while; what to say at the next attempt.

        Where it may be either, a wake-up ends the wait, and without one it gets longer each time.
        """
        backoff = min(left, self.shuffle(*BACKOFF))
        if refused.signal is None:
            yield Sleep(backoff)
            return LAST_TRY if backoff == left else -primitive.queue
        pause = min(left, refused.refusal.remaining + 0.001, primitive.patience)
        if not refused.sure:
            pause = min(pause, backoff * 2 ** min(tries, 5))
        signal, *more = primitive.signals(claim, refused.refusal)
        answer = yield Signal(signal, pause, refused.signal, more)
        if isinstance(answer, Fault):
            yield Sleep(backoff)
        return LAST_TRY if pause == left else -primitive.queue

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """The lease with ``ttl`` from now on, or ``None`` when it is lost. Raises ``LockUnavailable``."""
        (outcome,) = yield from self.extend_many(primitive, [(lease, ttl)])
        if isinstance(outcome, Fault):
            raise outcome.error if isinstance(outcome.error, LockError) else trouble(lease.claim.name, outcome)
        return outcome

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """The same for many, in one pipeline for each node; a `Fault` where too few nodes could be asked."""
        start, everyone = self.clock(), range(self.nodes)
        due = [(lease, ttl) for lease, ttl in leases if start < lease.valid_until]
        runs = [primitive.prolong(lease.claim, ttl, lease.tenure(start, ttl)) for lease, ttl in due]
        asks = [Batch([run.at(node) for run in runs], node) for node in everyone]
        answers = (yield Together(asks, _all, b"")) if due else []
        outcomes: dict[bytes, Lease | Fault | None] = {}
        for index, (lease, ttl) in enumerate(due):
            replies = [answer if isinstance(answer, Fault) else answer[index] for answer in answers]
            outcomes[lease.claim.token] = yield from self._extended(primitive, lease, ttl, start, replies)
        return [outcomes.get(lease.claim.token) for lease, _ in leases]

    def _extended(
        self, primitive: Primitive, lease: Lease, ttl: float, start: float, replies: list[Any]
    ) -> Flow[Lease | Fault | None]:
        need = votes_needed(self.nodes, primitive.limit)
        absent = [node for node in lease.nodes if replies[node] == 0]
        kept = sum(confirmed(reply) for reply in replies)
        if absent and kept >= need:  # a node was away when the lock was taken, or has restarted: get its vote (back)
            votes = [[*self._touch(node), putting_back(primitive, lease.claim, ttl, node)] for node in absent]
            yield Together([Batch(runs, runs[0].node) for runs in votes], _all, lease.claim.family)
        elif absent and self.guard:
            kept += yield from self._reseed(primitive, lease, ttl, self.guard, absent)
        if kept >= need:
            return lease.prolonged(start, ttl)
        faults = {node: reply for node, reply in enumerate(replies) if isinstance(reply, Fault)}
        if kept + len(faults) >= need:
            return Fault(self._no_quorum(lease.claim.name, faults))
        return None

    def _reseed(self, primitive: Primitive, lease: Lease, ttl: float, guard: Guard, absent: Sequence[int]) -> Flow[int]:
        """How many of the nodes that have forgotten the lock have it again."""
        votes = [
            Batch([guard.touch(node), reseeding(primitive, lease.claim, ttl, guard, node)], node) for node in absent
        ]
        answers = yield Together(votes, _all, lease.claim.family)
        if self.clock() >= lease.valid_until:
            return 0
        return sum(confirmed(answer[1]) for answer in answers if not isinstance(answer, Fault))

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Free all nodes; whether a majority still held it. Raises ``LockUnavailable`` when too few could be asked."""
        need, claim = votes_needed(self.nodes, primitive.limit), claim.all_attempts()
        asks = self._everywhere(primitive.free(claim, keep))
        replies = yield Together(asks, lambda got: got.count(1) >= need or None not in got, claim.family)
        faults = {node: reply for node, reply in enumerate(replies) if isinstance(reply, Fault)}
        if len(faults) > self.nodes - need:
            raise self._no_quorum(claim.name, faults)
        return bool(replies.count(1) + len(faults) >= need)

    def withdraw(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """`release` for one that may have waited."""
        yield Together(self._everywhere(primitive.leave(claim)), _all, claim.family)
        return (yield from self.release(primitive, claim))

    def describe(self, name: str, keys: Keys, queue: bool = False) -> Flow[Held | None]:
        """Who holds the lock on most nodes, and on which. Raises ``LockUnavailable`` when too few could be asked.

        Without the ``queue`` only who may have a majority: what a few nodes know is a vote that came late, or was lost.
        """
        asks = self._everywhere(Run(_DESCRIBE, (keys.lock, keys.waiters, keys.renewed), (b"1" if queue else b"0",)))
        replies = yield Together(asks, _all, b"")
        faults = {node: reply for node, reply in enumerate(replies) if isinstance(reply, Fault)}
        if len(faults) > self.nodes - (need := votes_needed(self.nodes)):
            raise self._no_quorum(name, faults)
        found = [
            understood(name, partial(read_held, name), reply, self._label(node))
            for node, reply in enumerate(replies)
            if reply and not isinstance(reply, Fault)
        ]
        return merged(found, 1 if queue else need - len(faults))

    def _no_quorum(self, name: str, faults: Mapping[int, Fault]) -> LockError:
        misuse = [fault for fault in faults.values() if misused(fault)]
        if len(misuse) > self.nodes // 2:
            return trouble(name, misuse[0])
        errors = {fault.where or self._label(node): fault.error for node, fault in faults.items()}
        return unavailable(name, f"no majority of the {self.nodes} nodes can be asked", errors)

    def _label(self, node: int) -> str:
        return self.labels[node] if self.labels else f"node {node}"


def _outcome(claim: Claim, reply: Any, start: float) -> Lease | Refusal | Fault | None:
    reply = served(reply)
    try:
        return reply if reply is None or isinstance(reply, Fault) else outcome_of(claim, reply, start)
    except LockUnavailable:
        return nonsense(reply)
