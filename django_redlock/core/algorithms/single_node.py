"""The algorithm for one node: a single Redis, or a master behind Sentinels."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ..flow.replies import fault_error, is_confirmed, is_grant, parse_reply, read_outcome, unwrap_reply
from ..flow.requests import AfterBlock, Batch, Block, BlockThenEval, EvalScript, Fault, Flow, Sleep
from ..keys import Keys
from ..lock_info import LockInfo, read_lock_info
from ..primitives.base import Primitive, describe_request, is_released, names_waiters, wake_request
from ..values import DRIFT, Claim, Lease, OnRefusal, Refusal, Wait
from .quarantine import Quarantine
from .retries import RETRY_SECONDS, must_requeue, release_unconfirmed, run_idempotent, run_while_moving

Try = tuple[Claim, float, Any]  # the claim with its attempt number, when it was sent (monotonic seconds), the reply
FAILOVER_SECONDS = 30.0  # how long a waiter retries a store that does not reply, since it may fail over
MOST_REFUSED = 10_000  # the largest number of refused locks that an algorithm remembers


def _granted_after(start: float, waited: float, now: float) -> float:
    """Return the earliest time at which the lease of a waiter may have begun (monotonic seconds).

    This is ``start``, the time of the request, plus the ``waited`` seconds to the grant, less drift. ``now``, the time
    at which the reply was read, is too late, because the reply may have waited in the socket.
    """
    return max(start, min(now, start + waited * (1 - DRIFT)))


class SingleNode:
    """The algorithm for one node. All methods return flows (generators of requests).

    ``clock``: returns monotonic seconds. ``quarantine``: the script prepended to acquire scripts; ``None``: no
    quarantine. ``describe_request``: builds the request that reads a lock. ``runs_scripts``: whether the server has run
    a script.
    """

    runs_scripts = True
    extend = None

    def __init__(self, clock: Callable[[], float], quarantine: Quarantine | None = None) -> None:
        self.clock = clock
        self.quarantine = quarantine
        self.describe_request: Callable[[Keys, bool], EvalScript] = describe_request
        self._refused: set[bytes] = set()  # locks that were refused lately, for which no SET NX is sent

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        """Acquire the lock, retrying after each wake-up until ``deadline`` (monotonic seconds).

        A waiter sends BLPOP and the acquire script in one pipeline, so that the script runs directly after the wake-up.
        New claims queue behind waiters. With a fair queue, the waiter sends the script after the reply to BLPOP,
        because the node must not grant the lock to a waiter that no longer responds.
        """
        if lease := (yield from self.acquire_free(primitive, claim)):
            return lease
        clock = self.clock
        start, waited = clock(), False
        unconfirmed: list[Claim] = []  # attempts that may have been granted, although no reply has arrived
        wait = Wait.QUEUE if deadline > start else Wait.NO
        reply = yield from self._try(primitive, claim, wait)
        if is_grant(reply):
            self._refused.discard(claim.keys.lock)
        while True:
            if isinstance(reply, Fault) and (waited or reply.migrating):
                wait = Wait.REQUEUE
                claim, start, reply = yield from self._retry_until_served(
                    primitive, claim, reply, deadline, unconfirmed
                )
            if isinstance(reply, Fault):
                raise fault_error(claim.name, reply._replace(unconfirmed=reply.unconfirmed or bool(unconfirmed)))
            outcome = read_outcome(claim, reply, start)
            if unconfirmed:
                yield from release_unconfirmed(primitive, unconfirmed)  # one of them may hold the lock
            left = deadline - clock()
            if isinstance(outcome, Lease) or outcome.final:
                return outcome
            if left <= 0:
                for part in self._by_slot(claim) if wait.listed else ():
                    yield from run_idempotent(primitive.dequeue_request(part))
                return outcome
            if on_refusal is not None:
                on_refusal(outcome)
            if must_requeue(wait, left):
                wait = Wait.REQUEUE
                claim, start, reply = yield from self._next_try(primitive, claim, wait)
                continue
            pause = min(left, outcome.remaining + 0.001, self._max_block(primitive, outcome))
            wait, waited = Wait.LAST_TRY if pause == left else Wait.REQUEUE, True
            block = self._block_then_try if self._waits_apart(primitive, claim) else self._block_and_try
            claim, start, reply = yield from block(primitive, claim, wait, primitive.wake_keys(claim, outcome), pause)

    def acquire_free(self, primitive: Primitive, claim: Claim) -> Flow[Lease | None]:
        """Acquire the lock with SET NX if it is free. Returns the lease; ``None``: the caller must use `acquire`.

        SET NX is not sent if the lock was refused lately, because SET NX can't register a waiter or take a lock that is
        reserved for one. Before the first SET NX, a release script is run: a server that runs no scripts could not
        release the lock.
        """
        lock, start = claim.keys.lock, self.clock()
        set_nx = None if self.quarantine or lock in self._refused else primitive.set_request(claim)
        if set_nx is None:
            return None
        reply = None if self.runs_scripts else (yield from run_idempotent(primitive.release_request(claim)))
        if not isinstance(reply, Fault):
            self.runs_scripts = True
            reply = yield set_nx
            if isinstance(reply, Fault):
                reply = yield from run_idempotent(primitive.acquire_request(claim), reply)
        if isinstance(reply, Fault):
            if reply.migrating and not reply.unconfirmed:
                return None
            raise fault_error(claim.name, reply)
        if is_grant(reply):
            return Lease.granted(claim, start)
        if len(self._refused) >= MOST_REFUSED:
            self._refused.clear()
        self._refused.add(lock)
        return None

    def _try(self, primitive: Primitive, claim: Claim, wait: Wait) -> Flow[Any]:
        return self.run_granting(primitive.acquire_request(claim, wait), claim.name)

    def _next_try(self, primitive: Primitive, claim: Claim, wait: Wait) -> Flow[Try]:
        """Run the acquire script, with a new attempt number in the token."""
        start = self.clock()
        claim = claim.next_attempt(start)
        return claim, start, (yield from self._try(primitive, claim, wait))

    def _block_then_try(
        self, primitive: Primitive, claim: Claim, wait: Wait, wake_keys: Sequence[bytes], pause: float
    ) -> Flow[Try]:
        """Block until a wake-up, for at most ``pause`` seconds, and run the acquire script after the reply to BLPOP."""
        reply = yield Block(wake_keys, pause)
        if isinstance(reply, Fault):
            if reply.refused and not reply.transient:  # no permission, or a key of another type
                raise fault_error(claim.name, reply)
            yield Sleep(min(pause, RETRY_SECONDS[0]))
        return (yield from self._next_try(primitive, claim, wait))

    def _block_and_try(
        self, primitive: Primitive, claim: Claim, wait: Wait, wake_keys: Sequence[bytes], pause: float
    ) -> Flow[Try]:
        """As `_block_then_try`, but send BLPOP and the script in one pipeline."""
        start = self.clock()
        claim = claim.next_attempt(start)
        call = self._guarded(primitive.acquire_request(claim, wait))
        reply = yield BlockThenEval(call, wake_keys, pause)
        reply, seconds = reply if isinstance(reply, AfterBlock) else (reply, 0.0)
        now = self.clock()
        if isinstance(reply, Fault):
            # Repeats the request only after a closed connection. After a timeout, a compensation with this token may
            # still be in flight.
            return claim, now, unwrap_reply((yield from run_idempotent(call, reply)))
        return claim, _granted_after(start, seconds, now), unwrap_reply(reply)

    def _waits_apart(self, primitive: Primitive, claim: Claim) -> bool:
        """Return whether a waiter sends the acquire script after the reply to BLPOP, not in one pipeline with BLPOP."""
        return primitive.access != ""

    def _by_slot(self, claim: Claim) -> list[Claim]:
        """Return ``claim`` split into the claims that are acquired or dequeued in one request each."""
        return [claim]

    def _by_lock(self, claim: Claim) -> list[Claim]:
        """Return ``claim`` split into one claim for each request that extends or releases it."""
        return [claim]

    def _retry_until_served(
        self, primitive: Primitive, claim: Claim, fault: Fault, deadline: float, unconfirmed: list[Claim]
    ) -> Flow[Try]:
        """Repeat an acquire while its reply is a transient `Fault` (failover, quarantine).

        Stops at ``deadline`` (monotonic seconds), or after `FAILOVER_SECONDS` if that is earlier. Waits longer for the
        end of a quarantine, but stops at once if the quarantine ends after ``deadline``. Each try has a new attempt
        number in its token, because a late release of an earlier try must not release a later grant. Appends the
        attempts that may have been granted, although no reply has arrived, to ``unconfirmed``. Returns the last try.
        """
        start, reply = self.clock(), fault
        until = start + FAILOVER_SECONDS
        while isinstance(reply, Fault):
            if reply.unconfirmed:
                unconfirmed.extend(self._by_slot(claim))
            now, ends = self.clock(), reply.retry_after
            until = max(until, now + ends + RETRY_SECONDS[1]) if ends else until
            left = min(deadline, until) - now
            if not reply.transient or left <= ends:
                break
            yield Sleep(min(left, max(ends, random.uniform(*RETRY_SECONDS))))
            claim, start, reply = yield from self._next_try(primitive, claim, Wait.REQUEUE)
        return claim, start, reply

    def _max_block(self, primitive: Primitive, refusal: Refusal) -> float:
        return primitive.max_block

    def _guarded(self, call: EvalScript) -> EvalScript:
        return self.quarantine.wrap(call) if self.quarantine else call

    def run_granting(self, call: EvalScript, name: str) -> Flow[Any]:
        """Run a script that grants or refuses the lock ``name``. Returns the reply or a `Fault`."""
        return unwrap_reply((yield from run_idempotent(self._guarded(call))))

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """Extend many leases in one pipeline. A multilock is lost if any of its locks is lost.

        The pipeline also starts a quarantine that is due, because a server that has restarted may have lost locks.
        """
        start, guard = self.clock(), self.quarantine
        # Don't extend a lease that has ended: a node that has restarted with old data would confirm it.
        calls = [
            [primitive.extend_request(part, ttl) for part in self._by_lock(lease.claim)]
            if start < lease.valid_until
            else []
            for lease, ttl in leases
        ]
        touch = [guard.noop_request()] if guard else []
        replies = yield from _run_groups(calls, touch)
        if guard and (absent := [index for index, each in enumerate(replies) if each == [0]]):
            restores = [guard.restore_request(primitive, leases[i][0].claim, leases[i][1]) for i in absent]
            _, *restored = yield Batch([*touch, *restores])
            now = self.clock()
            for index, reply in zip(absent, restored, strict=True):
                replies[index] = [reply] if now < leases[index][0].valid_until else []
        return [_extension(lease, ttl, each, start) for (lease, ttl), each in zip(leases, replies, strict=True)]

    def hand_over(self, primitive: Primitive, claim: Claim, following: Claim) -> Flow[Lease | None]:
        """Release ``claim`` and acquire the lock for ``following`` in one request.

        Returns ``None`` if ``claim`` did not hold the lock. Raises ``LockUnavailable`` if a repeated
        request finds that ``claim`` doesn't hold the lock: the first request may have handed the lock over, and the
        next holder may have released it.
        """
        start = self.clock()
        call = primitive.hand_over_request(claim, following)
        reply = yield call
        if isinstance(reply, Fault) and reply.stale:
            fault, reply = reply, (yield call)
            reply = reply if is_confirmed(reply) or isinstance(reply, Fault) else fault
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        outcome = read_outcome(following, reply, start) if is_confirmed(reply) else None
        return outcome if isinstance(outcome, Lease) else None

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        reply = yield from run_while_moving(self.describe_request(keys, with_waiters))
        if isinstance(reply, Fault):
            raise fault_error(name, reply)
        return parse_reply(name, partial(read_lock_info, name), reply) if reply else None

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        yield Batch(list(map(primitive.dequeue_request, self._by_slot(claim))))
        return (yield from self.release(primitive, claim.all_attempts()))

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        call = primitive.release_request(claim, keep)
        reply = yield call
        if isinstance(reply, Fault) and reply.migrating:
            reply = yield from run_while_moving(call)
        stale = isinstance(reply, Fault) and reply.stale
        if stale:
            reply = yield call
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        if names_waiters(reply):
            yield wake_request(claim.keys, reply)
        return stale or is_released(reply)  # a repeated request may find that the first one has released the lock


def _run_groups(groups: Sequence[Sequence[EvalScript]], more: Sequence[EvalScript] = ()) -> Flow[list[list[Any]]]:
    """Run the scripts of all ``groups`` and ``more`` in one pipeline. Returns a list of replies for each group."""
    calls = [call for group in groups for call in group]
    replies = iter((yield Batch([*calls, *more])) if calls else ())
    return [list(islice(replies, len(group))) for group in groups]


def _extension(lease: Lease, ttl: float, replies: Sequence[Any], start: float) -> Lease | Fault | None:
    """Return the outcome of an extension from its ``replies``. ``start``: when it was sent (monotonic seconds)."""
    if replies == [1]:  # nearly always
        return lease.extended(start, ttl)
    faults = [reply for reply in replies if isinstance(reply, Fault)]
    if sum(map(is_confirmed, replies)) + len(faults) < max(1, len(replies)):
        return None
    return faults[0] if faults else lease.extended(start, ttl)
