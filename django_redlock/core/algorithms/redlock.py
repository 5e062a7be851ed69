"""Redlock: a majority of N independent nodes (Redis documentation, "The Redlock Algorithm")."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import LockError, LockUnavailable
from ..events import report_fault
from ..flow.replies import (
    Quarantined,
    fault_error,
    is_confirmed,
    misuse_error,
    parse_reply,
    read_outcome,
    unavailable_error,
    unreadable,
    unwrap_reply,
)
from ..flow.requests import Batch, Block, EvalScript, Fault, Flow, SendToAll, Sleep
from ..keys import Keys
from ..lock_info import LockInfo, read_lock_info
from ..primitives.base import Primitive, describe_request, is_released, names_waiters, wake_request
from ..values import Claim, Lease, OnRefusal, Refusal, Wait
from .quarantine import Quarantine
from .retries import must_requeue
from .votes import RefusedAttempt, acquire_decided, merge_views, refused_attempt, split_votes, votes_needed

BACKOFF_SECONDS = 0.005, 0.05  # drawn at random, so that clients that split the vote do not retry in step


def _no_replies_needed(replies: Sequence[Any]) -> bool:
    del replies
    return True


def _all_answered(replies: Sequence[Any]) -> bool:
    return None not in replies


@dataclass(frozen=True)
class Redlock:
    """The Redlock algorithm for N nodes. All methods return flows (generators of requests).

    ``clock``: returns monotonic seconds. ``quarantine``: the script prepended to acquire scripts; ``None``: no
    quarantine. ``draw_pause``: returns a random pause in seconds after a split vote. ``labels``: the names of the nodes
    in errors.
    """

    nodes: int
    clock: Callable[[], float]
    quarantine: Quarantine | None = None
    draw_pause: Callable[[float, float], float] = random.uniform
    labels: Sequence[str] = ()

    # SET NX does not tell the holder on each node. No single request can hand a lock over on a majority.
    acquire_free = hand_over = None
    extend = None

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        """Acquire on a majority of nodes, retrying until ``deadline`` (monotonic seconds).

        Returns a lease or a refusal. Sends the script to all nodes at once, and stops reading as soon as a majority has
        granted or can no longer grant. Releases the votes of a minority. Between attempts, waits for a wake-up or,
        after a split vote, for a random time. Raises ``LockUnavailable`` with the error of each node if too few nodes
        reply.
        """
        wait = Wait.QUEUE if deadline > self.clock() else Wait.NO
        for tries in itertools.count():
            claim = claim.next_attempt(self.clock())
            outcome = yield from self._attempt(primitive, claim, wait, deadline)
            left = deadline - self.clock()
            if isinstance(outcome, Lease):
                return outcome
            if left <= 0:
                if wait.listed:
                    leave = self._everywhere(primitive.dequeue_request(claim))
                    yield SendToAll(leave, _no_replies_needed, claim.acquisition_id)
                return outcome.refusal
            if on_refusal is not None:
                on_refusal(outcome.refusal)
            if outcome.wake_node is not None and must_requeue(wait, left):
                wait = Wait.REQUEUE
            else:
                wait = yield from self._pause(primitive, claim, outcome, left, tries)
        raise AssertionError

    def _attempt(self, primitive: Primitive, claim: Claim, wait: Wait, deadline: float) -> Flow[Lease | RefusedAttempt]:
        need = votes_needed(self.nodes, primitive.limit)
        start = self.clock()
        call = primitive.acquire_request(claim, wait)
        calls = self._everywhere(self.quarantine.wrap(call) if self.quarantine else call)
        decided = partial(acquire_decided, need=need)
        replies = yield SendToAll(calls, decided, claim.acquisition_id, "acquire", deadline)
        outcomes = [_outcome(claim, reply, start) for reply in replies]
        for node, each in enumerate(outcomes):  # if the attempt succeeds without it, nothing else shows its quarantine
            if type(each) is Fault and isinstance(each.error, Quarantined):
                report_fault(self._label(node), "quarantine")
        grants, strays = split_votes([(node, each) for node, each in enumerate(outcomes) if isinstance(each, Lease)])
        if len(grants) >= need:
            token = max((each.fencing_token for each in grants if each.fencing_token), default=None)
            answered = tuple(node for node, each in enumerate(outcomes) if isinstance(each, Lease | Refusal))
            lease = grants[0]._replace(fencing_token=token, nodes=answered)
            if strays:  # votes for stripes other than the granted stripe
                yield SendToAll(
                    [primitive.release_request(each.claim, node=node) for node, each in strays],
                    _no_replies_needed,
                    claim.acquisition_id,
                    "release",
                )
            if token is None or (yield from self._store_fencing_token(primitive, lease.claim, token, need)):
                return lease._replace(claim=lease.claim.with_rest_of(claim))
        # Release on all nodes, also on nodes that refused or did not reply: a late vote would block the lock for a ttl.
        undo = self._everywhere(primitive.release_request(claim))
        yield SendToAll(undo, _no_replies_needed, claim.acquisition_id, "release", deadline)
        faults = {node: each for node, each in enumerate(outcomes) if isinstance(each, Fault)}
        if len(faults) > self.nodes - need or (len(grants) >= need and claim.fencing):
            raise self._no_quorum(claim.name, faults)
        any_one = len(claim.all_keys) > 1 and not claim.require_all
        return refused_attempt(outcomes, need, any_one=any_one, several=primitive.limit > 1 or primitive.access != "")

    def _everywhere(self, call: EvalScript) -> list[EvalScript]:
        return [call.at(node) for node in range(self.nodes)]

    def _store_fencing_token(self, primitive: Primitive, claim: Claim, token: int, need: int) -> Flow[bool]:
        """Store the fencing token on the nodes. Returns whether ``need`` nodes have stored it.

        At least one of these nodes takes part in the next grant, so the next token is larger.
        """
        calls = self._everywhere(primitive.fencing_request(claim, token))
        replies = yield SendToAll(calls, lambda got: got.count(1) >= need or None not in got, claim.acquisition_id)
        return bool(replies.count(1) >= need)

    def _pause(
        self, primitive: Primitive, claim: Claim, refused: RefusedAttempt, left: float, tries: int
    ) -> Flow[Wait]:
        """Wait for a wake-up or, after a split vote, for a random time. Returns the `Wait` of the next attempt.

        If the vote may have been split, the wait for a wake-up is short at first, and doubles with each attempt.
        """
        backoff = min(left, self.draw_pause(*BACKOFF_SECONDS))
        if refused.wake_node is None:
            yield Sleep(backoff)
            return Wait.LAST_TRY if backoff == left else Wait.REQUEUE
        pause = min(left, refused.refusal.remaining + 0.001, primitive.max_block)
        if not refused.certain:
            pause = min(pause, backoff * 2 ** min(tries, 5))
        answer = yield Block(primitive.wake_keys(claim, refused.refusal), pause, refused.wake_node)
        if isinstance(answer, Fault):
            yield Sleep(backoff)
        return Wait.LAST_TRY if pause == left else Wait.REQUEUE

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """Extend many leases in one pipeline for each node. The outcome is a `Fault` if too few nodes replied."""
        start, everyone = self.clock(), range(self.nodes)
        due = [(lease, ttl) for lease, ttl in leases if start < lease.valid_until]
        calls = [primitive.extend_request(lease.claim, ttl) for lease, ttl in due]
        batches = [Batch([call.at(node) for call in calls], node) for node in everyone]
        answers = (yield SendToAll(batches, _all_answered, b"")) if due else []
        outcomes: dict[bytes, Lease | Fault | None] = {}
        silent: set[int] = set()
        for index, (lease, ttl) in enumerate(due):
            replies = [answer if isinstance(answer, Fault) else answer[index] for answer in answers]
            outcome = yield from self._count_extensions(primitive, lease, ttl, start, replies, silent)
            outcomes[lease.claim.token] = outcome
        return [outcomes.get(lease.claim.token) for lease, _ in leases]

    def _count_extensions(
        self, primitive: Primitive, lease: Lease, ttl: float, start: float, replies: list[Any], silent: set[int]
    ) -> Flow[Lease | Fault | None]:
        """Count the ``replies`` of all nodes to an extension, and restore the lock on nodes that do not have it.

        With a majority, the restored votes count from the next extension on. Without a majority, the lock is restored
        only on nodes in quarantine that have answered the acquire, and their votes count at once. Returns the extended
        lease, ``None`` if the lease is lost, or a `Fault` if too few nodes replied. ``silent``: nodes that did not
        reply when another lock of the same batch was restored.
        """
        need, guard = votes_needed(self.nodes, primitive.limit), self.quarantine
        kept = sum(is_confirmed(reply) for reply in replies)
        absent = [node for node, reply in enumerate(replies) if reply == 0]
        if kept >= need:
            absent = [node for node in absent if node not in silent]
            restore = primitive.restore_request(lease.claim, ttl)
        elif guard:
            # Votes count at once, so a request of the acquire must not be in flight to these nodes.
            absent = [node for node in absent if node in lease.nodes]
            restore = guard.restore_request(primitive, lease.claim, ttl)
        else:
            absent = []
        if absent:
            calls = [*([guard.noop_request()] if guard else []), restore]  # starts a quarantine that is due
            batches = [Batch([call.at(node) for call in calls], node) for node in absent]
            answers = yield SendToAll(batches, _all_answered, lease.claim.acquisition_id)
            silent.update(node for node, answer in zip(absent, answers, strict=True) if isinstance(answer, Fault))
            if kept < need and self.clock() < lease.valid_until:
                kept += sum(is_confirmed(answer[-1]) for answer in answers if not isinstance(answer, Fault))
        if kept >= need:
            return lease.extended(start, ttl)
        faults = {node: reply for node, reply in enumerate(replies) if isinstance(reply, Fault)}
        if kept + len(faults) >= need:
            return Fault(self._no_quorum(lease.claim.name, faults))
        return None

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Release on all nodes. Returns whether ``claim`` held the lock on a majority.

        A node that does not reply counts as a node on which the claim held the lock. ``keep``: seconds for which the
        lock stays unavailable. Raises ``LockUnavailable`` if too few nodes reply.
        """
        need, claim = votes_needed(self.nodes, primitive.limit), claim.all_attempts()
        calls = self._everywhere(primitive.release_request(claim, keep))
        enough = _all_answered if primitive.access else lambda got: got.count(1) >= need or None not in got
        replies = yield SendToAll(calls, enough, claim.acquisition_id, "release")
        if wakes := [wake_request(claim.keys, each, node) for node, each in enumerate(replies) if names_waiters(each)]:
            yield SendToAll(wakes, _no_replies_needed, claim.acquisition_id)
        faults = {node: reply for node, reply in enumerate(replies) if isinstance(reply, Fault)}
        if len(faults) > self.nodes - need:
            raise self._no_quorum(claim.name, faults)
        return sum(map(is_released, replies)) + len(faults) >= need

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """Remove ``claim`` from the waiters of all nodes, and release the lock if any attempt of ``claim`` was granted.

        Result and errors as in `release`.
        """
        yield SendToAll(self._everywhere(primitive.dequeue_request(claim)), _all_answered, claim.acquisition_id)
        return (yield from self.release(primitive, claim))

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        """Return the holder that most nodes report, with the names of these nodes; ``None`` if the lock is not held.

        ``with_waiters``: describe also the waiters, and a holder without a majority. Otherwise, a lock without a
        majority counts as free, because its votes remain from a late grant or a lost lock. Raises ``LockUnavailable``
        if no majority replies.
        """
        calls = self._everywhere(describe_request(keys, with_waiters))
        replies = yield SendToAll(calls, _all_answered, b"")
        faults = {node: reply for node, reply in enumerate(replies) if isinstance(reply, Fault)}
        if len(faults) > self.nodes - (need := votes_needed(self.nodes)):
            raise self._no_quorum(name, faults)
        found = [
            parse_reply(name, partial(read_lock_info, name), reply, self._label(node))
            for node, reply in enumerate(replies)
            if reply and not isinstance(reply, Fault)
        ]
        return merge_views(found, 1 if with_waiters else need - len(faults))

    def _no_quorum(self, name: str, faults: Mapping[int, Fault]) -> LockError:
        misuse = [fault for fault in faults.values() if misuse_error(fault)]
        if len(misuse) > self.nodes // 2:
            return fault_error(name, misuse[0])
        errors = {fault.where or self._label(node): fault.error for node, fault in faults.items()}
        return unavailable_error(name, f"no majority of the {self.nodes} nodes is available", errors)

    def _label(self, node: int) -> str:
        return self.labels[node] if self.labels else f"node {node}"


def _outcome(claim: Claim, reply: Any, start: float) -> Lease | Refusal | Fault | None:
    reply = unwrap_reply(reply)
    try:
        return reply if reply is None or isinstance(reply, Fault) else read_outcome(claim, reply, start)
    except LockUnavailable:
        return unreadable(reply)
