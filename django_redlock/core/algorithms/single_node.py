"""One node's word counts: a single Redis, the master that Sentinels name, or the owner of a slot in a Cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...errors import LockUnavailable
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
            if isinstance(outcome, Lease) or left <= 0:
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
        start = self.clock()
        if start >= lease.valid_until:
            return None  # a node that came back with old data would say yes
        reply = yield from run_idempotent(extend_request(primitive, lease, ttl))
        if reply == 0 and self.quarantine:
            _, reply = yield Batch(
                [
                    self.quarantine.noop_request(),
                    quarantine_restore_request(primitive, lease.claim, ttl, self.quarantine),
                ]
            )
            if self.clock() >= lease.valid_until:
                return None
        if isinstance(reply, Fault):
            raise fault_error(lease.claim.name, reply)
        return lease.extended(start, ttl) if is_confirmed(reply) else None

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """The same for many at once, in one pipeline; a `Fault` says nothing about the lease it stands for."""
        start = self.clock()
        runs = [extend_request(primitive, lease, ttl) for lease, ttl in leases]
        if self.quarantine:  # the server may have come back with the lock, and without others
            runs.append(self.quarantine.noop_request())
        replies = (yield Batch(runs))[: len(leases)]
        outcomes: list[Lease | Fault | None] = []
        for (lease, ttl), reply in zip(leases, replies, strict=True):
            if isinstance(reply, Fault):
                outcomes.append(reply)
            elif reply == 0 and self.quarantine:
                outcomes.append((yield from self._settled(primitive, lease, ttl)))
            else:
                outcomes.append(lease.extended(start, ttl) if reply == 1 else None)
        return outcomes

    def _settled(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | Fault | None]:
        try:
            return (yield from self.extend(primitive, lease, ttl))
        except LockUnavailable as error:
            return Fault(error)

    def hand_over(self, script: Script, claim: Claim, following: Claim) -> Flow[Lease | None]:
        """End the holding of ``claim`` and begin that of ``following``, in one moment; ``None``: it was not held."""
        start, keys = self.clock(), claim.keys
        terms = following.token, following.owner, millis(following.ttl), b"%d" % following.fencing
        reply = yield from run_idempotent(EvalScript(script, (keys.lock, keys.fence), (*terms, claim.token)))
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        outcome = read_outcome(following, reply, start) if is_confirmed(reply) else None
        return outcome if isinstance(outcome, Lease) else None

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        """Who holds the lock now, and with ``queue`` who waits for it. Raises ``LockUnavailable``."""
        reply = yield from run_idempotent(
            EvalScript(_DESCRIBE, (keys.lock, keys.waiters), (b"1" if with_waiters else b"0",))
        )
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
        """Whether the claim still held the lock that it gives back. Raises ``LockUnavailable``."""
        run = primitive.release_request(claim, keep)
        reply = yield run
        if type(reply) is not Fault:
            return bool(reply == 1)
        if reply.stale:
            reply = yield run
        if isinstance(reply, Fault):
            raise fault_error(claim.name, reply)
        return True  # a first request may have freed it: "not yours" proves nothing any more
