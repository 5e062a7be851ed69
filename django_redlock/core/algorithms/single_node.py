"""One node's word counts: a single Redis, the master that Sentinels name, or the owner of a slot in a Cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..flow.replies import fault_error, parse_reply, read_outcome, server_time
from ..flow.requests import Batch, Block, BlockThenEval, EvalAndWait, EvalScript, Fault, Flow, Sleep
from ..flow.scripts import Script, script
from ..keys import Keys
from ..lock_info import LockInfo, read_lock_info
from ..primitives.base import Primitive
from ..values import DRIFT, Claim, Lease, Refusal, millis, waited_before
from .quarantine import Quarantine, unwrap_reply

LAST_TRY = -1
MIN_WAIT_SECONDS = 0.05  # seconds
FAILOVER_SECONDS = 30.0  # seconds for which one who waits puts up with a store that can't be asked, if it may fail over
RETRY_SECONDS = 0.05, 0.2  # seconds between two tries meanwhile, drawn at random
_DESCRIBE = script("describe")


def run_idempotent(run: EvalScript | EvalAndWait) -> Flow[Any]:
    """``run``, once more on a new connection when an old one turned out to be closed: scripts are idempotent."""
    reply = yield run
    if isinstance(reply, Fault) and reply.stale:
        reply = yield run
    return reply


def run_in_order(runs: Iterable[EvalScript]) -> Flow[Any]:
    """The reply to the last of ``runs``, or the first `Fault`."""
    reply = None
    for run in runs:
        reply = yield from run_idempotent(run)
        if isinstance(reply, Fault):
            break
    return reply


def _granted_after(refusal: Refusal, server_us: int, asked: float, now: float) -> float:
    """A time before which the node did not grant, on our clock, for a grant that came while we were blocked.

    The reply may have lain in our socket for long, so its arrival proves nothing. But the node told its own time with
    the refusal and again with the grant, and the lease runs on that clock: the refusal was answered after we asked.
    """
    waited = (server_us - refusal.server_us) / 1e6
    return max(asked, min(now, refusal.asked_at + waited * (1 - DRIFT)))


def block(name: str, signal: Block, left: float) -> Flow[None]:
    """Wait for a wake-up. Where the server can't be waited on, pause instead, ``left`` seconds at most.

    Raises ``LockError`` where the server refuses to block for good: its user may not, or the key has another type.
    """
    reply = yield signal
    if isinstance(reply, Fault):
        if reply.refused and not reply.transient:
            raise fault_error(name, reply)
        yield Sleep(min(left, RETRY_SECONDS[0]))


def must_requeue(wait: int, left: float) -> bool:
    """Whether the last try came long before the time was up, and in vain: nobody would wake us any more."""
    return wait == LAST_TRY and left > MIN_WAIT_SECONDS


def is_listed(wait: int) -> bool:
    """Whether a refused request with this ``wait`` left an entry among the waiters. Newcomers queue behind it."""
    return wait not in (0, LAST_TRY)


def quarantine_restore_request(
    primitive: Primitive, claim: Claim, ttl: float, guard: Quarantine, node: int = 0
) -> EvalScript:
    """Put a lock back on a server that has forgotten it and is in quarantine for that reason.

    `Quarantine.noop_request` goes before it: nobody may have asked the server since it came back. The answer counts
    only while the old lease lasts: after that the server may have granted the lock to another, and have forgotten that
    too.
    """
    return guard.wrap(restore_request(primitive, claim, ttl, node), "quarantine_restore")


def restore_request(primitive: Primitive, claim: Claim, ttl: float, node: int) -> EvalScript:
    """Take a lock that is held already on a node that hasn't got it; nothing that comes late may undo that."""
    return (
        primitive._replace(queue_order=0).acquire_request(claim._replace(ttl=ttl), 0, node)._replace(compensation=None)
    )


def extend_request(primitive: Primitive, lease: Lease, ttl: float) -> EvalScript:
    """Replace the rest of a lease by ``ttl`` seconds. After a local hand-over also write the new owner."""
    claim = lease.claim
    if lease.new_claim is None or lease.new_claim.owner == claim.owner:
        return primitive.extend_request(claim, ttl)
    args = claim.token, millis(ttl), lease.new_claim.owner_since(lease.since - waited_before(claim.token))
    return EvalScript(script("mutex_set_owner"), (claim.keys.lock,), args)


def extension(lease: Lease, ttl: float, reply: Any, start: float) -> Lease | Fault | None:
    """The outcome of an extension to ``ttl`` seconds that was requested at ``start``."""
    if isinstance(reply, Fault):
        return reply
    return lease.extended(start, ttl) if is_confirmed(reply) else None


def is_confirmed(reply: Any) -> bool:
    """Whether an extension, or the re-seeding in its place, was granted."""
    return reply == 1 or (isinstance(reply, list) and reply[:1] == [1]) or (isinstance(reply, int) and reply > 1)


def retry_until_served(
    clock: Callable[[], float], deadline: float, reply: Any, again: Callable[[], Flow[Any]]
) -> Flow[Any]:
    """What ``again`` comes to, which is repeated as long as it is a `Fault` that passes: a failover, a quarantine.

    Not beyond ``deadline``, nor for longer than a failover takes, or a quarantine that is known to end.
    """
    until = clock() + FAILOVER_SECONDS
    while isinstance(reply, Fault) and reply.transient:
        until = max(until, clock() + reply.retry_after + RETRY_SECONDS[1]) if reply.retry_after else until
        left = min(deadline, until) - clock()
        if left <= reply.retry_after:
            break
        yield Sleep(min(left, max(reply.retry_after, random.uniform(*RETRY_SECONDS))))
        reply = yield from again()
    return reply


class SingleNode(NamedTuple):
    """The rule for one node."""

    clock: Callable[[], float]
    quarantine: Quarantine | None = None

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Ask, and while refused block on the wake-up list, until ``deadline``. Raises ``LockUnavailable``.

        A waiter sends "block" and "acquire" together: the node runs the second as soon as the first ends, so a
        hand-over takes one message. Nobody overtakes: the script makes a newcomer queue behind those who wait.
        Where they stand in line it is two: the node must not grant to one whose turn has come, but who stands still.
        """
        clock = self.clock
        start, asked = clock(), 0.0
        wait = primitive.waiter_ttl_ms if deadline > start else 0
        reply = yield from run_idempotent(self._acquire_request(primitive, claim, wait))
        while True:
            reply = unwrap_reply(reply)
            if isinstance(reply, Fault) and (asked or reply.migrating):
                wait = -primitive.waiter_ttl_ms
                claim, start, reply = yield from self._retry_until_served(primitive, claim, reply, deadline)
            if isinstance(reply, Fault):
                raise fault_error(claim.name, reply)
            outcome = read_outcome(claim, reply, start)
            left = deadline - clock()
            if isinstance(outcome, Lease):
                return outcome
            if left <= 0:
                if is_listed(wait):
                    yield from run_idempotent(primitive.dequeue_request(claim))
                return outcome
            if must_requeue(wait, left):
                wait, start = -primitive.waiter_ttl_ms, clock()
                claim = claim.next_attempt(start)
                reply = yield from run_idempotent(self._acquire_request(primitive, claim, wait))
                continue
            pause = min(left, outcome.remaining + 0.001, self._max_block(primitive, outcome))
            wait = LAST_TRY if pause == left else -primitive.waiter_ttl_ms
            asked = clock()
            claim = claim.next_attempt(asked)
            again = self._acquire_request(primitive, claim, wait)
            signal, *more = primitive.wake_keys(claim, outcome)
            if primitive.access:
                yield from block(claim.name, Block(signal, pause, more_keys=more), left)
                start = clock()
                reply = yield from run_idempotent(again)
                continue
            reply = yield BlockThenEval(again, signal, pause, more)
            start = clock()
            if isinstance(reply, Fault):
                # After a time-out the undoing of this token may still be under way: it can't be used again.
                reply = (yield from run_idempotent(again)) if reply.stale else reply
            else:
                start = _granted_after(outcome, server_time(reply), asked, start)

    def _retry_until_served(
        self, primitive: Primitive, claim: Claim, fault: Fault, deadline: float
    ) -> Flow[tuple[Claim, float, Any]]:
        """Ask again until a server serves. Each time it is another attempt."""
        start = self.clock()

        def again() -> Flow[Any]:
            nonlocal claim, start
            start = self.clock()
            claim = claim.next_attempt(start)
            return unwrap_reply(
                (yield from run_idempotent(self._acquire_request(primitive, claim, -primitive.waiter_ttl_ms)))
            )

        reply = yield from retry_until_served(self.clock, deadline, fault, again)
        return claim, start, reply

    def _max_block(self, primitive: Primitive, refusal: Refusal) -> float:
        return primitive.max_block

    def _acquire_request(self, primitive: Primitive, claim: Claim, wait: int) -> EvalScript:
        run = primitive.acquire_request(claim, wait)
        return self.quarantine.wrap(run) if self.quarantine else run

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """The lease with ``ttl`` from now on, or ``None`` when it is lost. Raises ``LockUnavailable``."""
        (outcome,) = yield from self.extend_many(primitive, [(lease, ttl)])
        if isinstance(outcome, Fault):
            raise fault_error(lease.claim.name, outcome)
        return outcome

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """`extend` for many leases in one pipeline; a `Fault` where the server gave no answer.

        With a quarantine, the pipeline also starts its clock: a server that has come back may have lost other locks.
        """
        start = self.clock()
        # A node that came back with old data would extend a lease that has ended.
        due = [index for index, (lease, _) in enumerate(leases) if start < lease.valid_until]
        if not due:
            return [None] * len(leases)
        runs = [extend_request(primitive, *leases[index]) for index in due]
        touch = [self.quarantine.noop_request()] if self.quarantine else []
        replies = dict(zip(due, (yield Batch([*runs, *touch])), strict=False))
        if self.quarantine and (absent := [index for index in due if replies[index] == 0]):
            guard = self.quarantine
            restores = [quarantine_restore_request(primitive, leases[i][0].claim, leases[i][1], guard) for i in absent]
            _, *restored = yield Batch([*touch, *restores])
            now = self.clock()
            replies.update(
                (index, reply if now < leases[index][0].valid_until else 0)
                for index, reply in zip(absent, restored, strict=True)
            )
        return [extension(*pair, replies.get(index, 0), start) for index, pair in enumerate(leases)]

    def hand_over(self, script: Script, claim: Claim, following: Claim) -> Flow[Lease | None]:
        """End the holding of ``claim`` and begin that of ``following``, in one moment; ``None``: it was not held."""
        start = self.clock()
        keys = (claim.keys.lock, claim.keys.fence)[: 1 + following.fencing]  # one if it will do: see `release`
        terms = following.token, following.owner, millis(following.ttl), b"%d" % following.fencing
        run = EvalScript(script._replace(keys=len(keys)), keys, (*terms, claim.token))
        reply = yield from run_idempotent(run)
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        outcome = read_outcome(following, reply, start) if is_confirmed(reply) else None
        return outcome if isinstance(outcome, Lease) else None

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        """Who holds the lock now, and with ``queue`` who waits for it. Raises ``LockUnavailable``."""
        reply = yield from run_idempotent(EvalScript(_DESCRIBE, (keys.lock,), (b"1" if with_waiters else b"0",)))
        if isinstance(reply, Fault):
            raise fault_error(name, reply)
        return parse_reply(name, partial(read_lock_info, name), reply) if reply else None

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """`release` for one that may have waited: whatever attempt got it, and out of the queue."""
        _, reply = yield Batch([primitive.dequeue_request(claim), primitive.release_request(claim.all_attempts())])
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        return bool(reply == 1)

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Whether the claim still held the lock that it gives back. Raises ``LockUnavailable``.

        While a Cluster moves a slot it refuses requests of several keys: then each key has a request of its own.
        """
        run = primitive.release_request(claim, keep)
        reply = yield run
        if type(reply) is not Fault:
            return bool(reply == 1)
        if reply.migrating:
            reply = yield from run_in_order(primitive.release_by_key(claim, keep))
            if not isinstance(reply, Fault):
                return bool(reply == 1)
        elif reply.stale:
            reply = yield run
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        return True  # a first request may have freed it: "not yours" proves nothing any more
