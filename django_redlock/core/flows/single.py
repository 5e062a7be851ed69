"""One node's word counts: a single Redis, the master that Sentinels name, or the owner of a slot in a Cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...errors import LockUnavailable
from ..guard import Guard, served
from ..held import Held, read_held
from ..keys import Keys
from ..lease import DRIFT, Claim, Lease, Refusal, millis
from ..primitives import Primitive
from ..replies import outcome_of, server_time, trouble, understood
from ..requests import Await, Batch, Confirmed, Fault, Flow, Run, Signal, Sleep
from ..scripts import Script, script

LAST_TRY = -1
WORTH_WAITING = 0.05  # seconds
FAILOVER = 30.0  # seconds for which one who waits puts up with a store that can't be asked, if it may fail over
RETRY = 0.05, 0.2  # seconds between two tries meanwhile, drawn at random
_DESCRIBE = script("describe")


def ask(run: Run | Confirmed) -> Flow[Any]:
    """``run``, once more on a new connection when an old one turned out to be closed: scripts are idempotent."""
    reply = yield run
    if isinstance(reply, Fault) and reply.stale:
        reply = yield run
    return reply


def _since(refusal: Refusal, server_us: int, asked: float, now: float) -> float:
    """A time before which the node did not grant, on our clock, for a grant that came while we were blocked.

    The reply may have lain in our socket for long, so its arrival proves nothing. But the node told its own time with
    the refusal and again with the grant, and the lease runs on that clock: the refusal was answered after we asked.
    """
    waited = (server_us - refusal.server_us) / 1e6
    return max(asked, min(now, refusal.asked + waited * (1 - DRIFT)))


def block(name: str, signal: Signal, left: float) -> Flow[None]:
    """Wait for a wake-up. Where the server can't be waited on, pause instead, ``left`` seconds at most.

    Raises ``LockError`` where the server refuses to block for good: its user may not, or the key has another type.
    """
    reply = yield signal
    if isinstance(reply, Fault):
        if reply.refused and not reply.passing:
            raise trouble(name, reply)
        yield Sleep(min(left, RETRY[0]))


def unlisted(wait: int, left: float) -> bool:
    """Whether the last try came long before the time was up, and in vain: nobody would wake us any more."""
    return wait == LAST_TRY and left > WORTH_WAITING


def reseeding(primitive: Primitive, claim: Claim, ttl: float, guard: Guard, node: int = 0) -> Run:
    """Put a lock back on a server that has forgotten it and is in quarantine for that reason.

    `Guard.touch` goes before it: nobody may have asked the server since it came back. The answer counts only while the
    old lease lasts: after that the server may have granted the lock to another, and have forgotten that too.
    """
    return guard.over(putting_back(primitive, claim, ttl, node), "reseed")


def putting_back(primitive: Primitive, claim: Claim, ttl: float, node: int) -> Run:
    """Take a lock that is held already on a node that hasn't got it; nothing that comes late may undo that."""
    return primitive._replace(order=0).take(claim._replace(ttl=ttl), 0, node)._replace(undoing=None)


def prolonging(primitive: Primitive, lease: Lease, ttl: float, start: float) -> Run:
    """Replace the rest of a lease; and say whose it is, if it was handed on since the store has last heard of it."""
    claim, tenure = lease.claim, lease.tenure(start, ttl)
    if lease.own is None or lease.own.owner == claim.owner:
        return primitive.prolong(claim, ttl, tenure)
    args = claim.token, millis(ttl), lease.own.owner, tenure
    return Run(script("mutex_tell"), (claim.keys.lock,), args)


def confirmed(reply: Any) -> bool:
    """Whether an extension, or the re-seeding in its place, was granted."""
    return reply == 1 or (isinstance(reply, list) and reply[:1] == [1]) or (isinstance(reply, int) and reply > 1)


def outlasting(clock: Callable[[], float], deadline: float, reply: Any, again: Callable[[], Flow[Any]]) -> Flow[Any]:
    """What ``again`` comes to, which is repeated as long as it is a `Fault` that passes: a failover, a quarantine.

    Not beyond ``deadline``, nor for longer than a failover takes, or a quarantine that is known to end.
    """
    until = clock() + FAILOVER
    while isinstance(reply, Fault) and reply.passing:
        until = max(until, clock() + reply.left + RETRY[1]) if reply.left else until
        left = min(deadline, until) - clock()
        if left <= reply.left:
            break
        yield Sleep(min(left, max(reply.left, random.uniform(*RETRY))))
        reply = yield from again()
    return reply


class SingleNode(NamedTuple):
    """The rule for one node."""

    clock: Callable[[], float]
    guard: Guard | None = None

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Ask, and while refused block on the wake-up list, until ``deadline``. Raises ``LockUnavailable``.

        A waiter sends "block" and "acquire" together: the node runs the second as soon as the first ends, so a
        hand-over takes one message. Nobody overtakes: the script makes a newcomer queue behind those who wait.
        Where they stand in line it is two: the node must not grant to one whose turn has come, but who stands still.
        """
        clock = self.clock
        start, asked = clock(), 0.0
        wait = primitive.queue if deadline > start else 0
        reply = yield from ask(self._take(primitive, claim, wait))
        while True:
            reply = served(reply)
            if isinstance(reply, Fault) and (asked or reply.moving):
                wait = -primitive.queue
                claim, start, reply = yield from self._outlast(primitive, claim, reply, deadline)
            if isinstance(reply, Fault):
                raise trouble(claim.name, reply)
            outcome = outcome_of(claim, reply, start)
            left = deadline - clock()
            if isinstance(outcome, Lease) or left <= 0:
                return outcome
            if unlisted(wait, left):
                wait, start = -primitive.queue, clock()
                reply = yield from ask(self._take(primitive, claim, wait))
                continue
            pause = min(left, outcome.remaining + 0.001, self._patience(primitive, outcome))
            wait = LAST_TRY if pause == left else -primitive.queue
            again = self._take(primitive, claim, wait)
            asked = clock()
            signal, *more = primitive.signals(claim, outcome)
            if primitive.mode:
                yield from block(claim.name, Signal(signal, pause, more=more), left)
                start = clock()
                reply = yield from ask(again)
                continue
            reply = yield Await(again, signal, pause, more)
            start = clock()
            if isinstance(reply, Fault):
                # After a time-out the undoing of this token may still be under way: it can't be used again.
                reply = (yield from ask(again)) if reply.stale else reply
            else:
                start = _since(outcome, server_time(reply), asked, start)

    def _outlast(
        self, primitive: Primitive, claim: Claim, fault: Fault, deadline: float
    ) -> Flow[tuple[Claim, float, Any]]:
        """Ask again until a server serves. Each time it is another attempt."""
        start = self.clock()

        def again() -> Flow[Any]:
            nonlocal claim, start
            claim, start = claim.again(), self.clock()
            return served((yield from ask(self._take(primitive, claim, -primitive.queue))))

        reply = yield from outlasting(self.clock, deadline, fault, again)
        return claim, start, reply

    def _patience(self, primitive: Primitive, refusal: Refusal) -> float:
        return primitive.patience

    def _take(self, primitive: Primitive, claim: Claim, wait: int) -> Run:
        run = primitive.take(claim, wait)
        return self.guard.over(run) if self.guard else run

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """The lease with ``ttl`` from now on, or ``None`` when it is lost. Raises ``LockUnavailable``."""
        start = self.clock()
        if start >= lease.valid_until:
            return None  # a node that came back with old data would say yes
        reply = yield from ask(prolonging(primitive, lease, ttl, start))
        if reply == 0 and self.guard:
            _, reply = yield Batch([self.guard.touch(), reseeding(primitive, lease.claim, ttl, self.guard)])
            if self.clock() >= lease.valid_until:
                return None
        if isinstance(reply, Fault):
            raise trouble(lease.claim.name, reply)
        return lease.prolonged(start, ttl) if confirmed(reply) else None

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[list[Lease | Fault | None]]:
        """The same for many at once, in one pipeline; a `Fault` says nothing about the lease it stands for."""
        start = self.clock()
        runs = [prolonging(primitive, lease, ttl, start) for lease, ttl in leases]
        if self.guard:  # the server may have come back with the lock, and without others
            runs.append(self.guard.touch())
        replies = (yield Batch(runs))[: len(leases)]
        outcomes: list[Lease | Fault | None] = []
        for (lease, ttl), reply in zip(leases, replies, strict=True):
            if isinstance(reply, Fault):
                outcomes.append(reply)
            elif reply == 0 and self.guard:
                outcomes.append((yield from self._settled(primitive, lease, ttl)))
            else:
                outcomes.append(lease.prolonged(start, ttl) if reply == 1 else None)
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
        reply = yield from ask(Run(script, (keys.lock, keys.fence), (*terms, claim.token)))
        if isinstance(reply, Fault):
            raise trouble(claim.name, reply)
        outcome = outcome_of(following, reply, start) if confirmed(reply) else None
        return outcome if isinstance(outcome, Lease) else None

    def describe(self, name: str, keys: Keys, queue: bool = False) -> Flow[Held | None]:
        """Who holds the lock now, and with ``queue`` who waits for it. Raises ``LockUnavailable``."""
        reply = yield from ask(Run(_DESCRIBE, (keys.lock, keys.waiters, keys.renewed), (b"1" if queue else b"0",)))
        if isinstance(reply, Fault):
            raise trouble(name, reply)
        return understood(name, partial(read_held, name), reply) if reply else None

    def withdraw(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """`release` for one that may have waited: whatever attempt got it, and out of the queue."""
        _, reply = yield Batch([primitive.leave(claim), primitive.free(claim.all_attempts())])
        if isinstance(reply, Fault):
            raise trouble(claim.name, reply)
        return bool(reply == 1)

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Whether the claim still held the lock that it gives back. Raises ``LockUnavailable``."""
        run = primitive.free(claim, keep)
        reply = yield run
        if type(reply) is not Fault:
            return bool(reply == 1)
        if reply.stale:
            reply = yield run
        if isinstance(reply, Fault):
            raise trouble(claim.name, reply)
        return True  # a first request may have freed it: "not yours" proves nothing any more
