"""The local queue: threads and tasks of one process that wait for the same lock, or for the same stripes.

Only the first caller, the leader, waits in the store. Later callers wait behind the leader. A release may hand the lock
over to the first local waiter with one request, which ends one acquisition and begins the next (Dice, Marathe and
Shavit, "Lock Cohorting", 2012).

The leader keeps its place in the store. After ``cohort`` hand-overs in a row, or after 10 ms of hand-overs, the lock is
released to the first waiter in the store. Threads share one queue; each event loop has its own, so that a blocked event
loop delays only its own tasks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from ...errors import LockError
from ..background.work import background
from ..contract import HandOver, Store
from ..flow.requests import AwaitEvent, Flow
from ..primitives.base import Primitive
from ..process import fork
from ..process.caller import Caller, WakeEvent, calling, running_loop
from ..process.mutex import state_mutex
from ..values import Claim, Lease, Refusal

LEADER_CHECK_SECONDS = 5.0  # seconds after which a waiter checks again that the leader still exists
HAND_OVER_SECONDS = 0.01  # seconds of hand-overs in a row, after which the lock is released to other processes


class WaiterState(Enum):
    """The states of a waiter. The state changes only under the mutex of the local queue.

    =========  ===========================================================  ==================
    state      meaning                                                      next
    =========  ===========================================================  ==================
    QUEUED     in the queue, behind the leader                              any
    RECEIVING  out of the queue; a release sends the hand-over request      LEADING, LEFT
    LEADING    out of the queue; asks the store, and waits in the store     LEFT
    LEFT       has a lease, or waits no longer
    =========  ===========================================================  ==================
    """

    QUEUED = auto()
    RECEIVING = auto()
    LEADING = auto()
    LEFT = auto()


class Waiter(WakeEvent):
    """A thread or task in a local queue. This thread or task must create the object. ``caller``: see `calling`."""

    __slots__ = ("__weakref__", "caller", "claim", "lease", "state")

    def __init__(self, caller: Caller, claim: Claim) -> None:
        super().__init__()
        self.caller = caller
        self.claim = claim
        self.state = WaiterState.QUEUED
        self.lease: Lease | None = None

    def lead(self) -> None:
        self.state = WaiterState.LEADING
        self.set()

    def grant(self, lease: Lease) -> None:
        self.lease, self.state = lease, WaiterState.LEFT
        self.set()


class WaitQueue:
    """The leader and the waiters of one lock. Changed under the mutex, except ``refusal``.

    ``leader()`` returns the leader; ``None`` if the leader's flow has ended without leaving the queue.
    """

    refusal: Refusal | None = None  # the store's last refusal, for waiters whose time is up
    hand_overs, hand_overs_since = 0, 0.0  # the number of hand-overs in a row, and the time of the first hand-over

    def __init__(self) -> None:
        self.leader: Callable[[], Waiter | None] = lambda: None
        self.waiters: dict[Caller, Waiter] = {}  # by caller, in order of arrival

    def add(self, waiter: Waiter) -> None:
        """Add ``waiter`` to the queue, or make it the leader if there is none.

        If the same thread or task already leads or waits, ``waiter`` asks the store itself: a signal handler must not
        wait for the thread that it has interrupted.
        """
        leader = self.leader()
        if leader is None:
            self.promote(waiter)
        elif waiter.caller == leader.caller or waiter.caller in self.waiters:
            waiter.state = WaiterState.LEADING
        else:
            self.waiters[waiter.caller] = waiter

    def remove(self, waiter: Waiter) -> None:
        if self.waiters.get(waiter.caller) is waiter:
            del self.waiters[waiter.caller]

    def promote(self, waiter: Waiter) -> None:
        """Make ``waiter`` the leader."""
        self.remove(waiter)
        self.leader = weakref.ref(waiter)
        waiter.lead()

    def first(self) -> Waiter:
        return next(iter(self.waiters.values()))

    def on_refusal(self, refusal: Refusal) -> None:
        self.refusal = refusal


class LocalQueues:
    """The queues of this process for the locks of one store. ``cohort``: the largest number of hand-overs in a row."""

    def __init__(self, store: Store, cohort: int) -> None:
        self._store = store
        self._cohort = cohort
        self._queues: dict[Any, WaitQueue] = {}

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Acquire the lock. If it is held, the first caller (the leader) waits in the store, and later callers here.

        A waiting caller gets the lock from a releasing holder, or becomes the leader. At ``deadline`` the caller gets
        the leader's last refusal; if there is none yet, the caller asks the store itself. Arguments, result and errors
        are those of `Algorithm.acquire`.
        """
        store, key, queue = self._store, _queue_key(claim), None
        acquire_free = None if key in self._queues else store.algorithm.acquire_free
        if acquire_free and (lease := (yield from acquire_free(primitive, claim))):
            return lease
        waiter = Waiter(calling(), claim)
        try:
            with state_mutex:
                if (queue := self._queues.get(key)) is None:
                    queue = self._queues[key] = WaitQueue()
                queue.add(waiter)
            if waiter.state is not WaiterState.LEADING:
                yield from self._wait_for_turn(primitive, queue, waiter, deadline)
                if waiter.lease is not None:
                    return waiter.lease
                now = store.clock()
                if waiter.state is WaiterState.LEFT and queue.refusal is not None:
                    return queue.refusal.later(now)
                claim = claim.next_attempt(now)
            outcome = yield from store.algorithm.acquire(primitive, claim, deadline, queue.on_refusal)
            # A grant by the store ends the row of hand-overs. Not for stripes, which are all counted in one row.
            if isinstance(outcome, Lease) and len(claim.all_keys) == 1:
                queue.hand_overs = 0
            return outcome
        except LockError:
            if queue is not None and waiter.state is WaiterState.LEADING:
                with state_mutex:  # all waiters ask the store, so that they get the error at once
                    while queue.waiters:
                        queue.waiters.pop(queue.first().caller).lead()
            raise
        finally:
            if queue is not None:
                self._leave(key, queue, waiter)

    def _wait_for_turn(self, primitive: Primitive, queue: WaitQueue, waiter: Waiter, deadline: float) -> Flow[None]:
        """Wait until ``waiter`` has a lease, or must ask the store itself. At ``deadline`` dequeue the waiter."""
        while waiter.state in (WaiterState.QUEUED, WaiterState.RECEIVING):
            yield AwaitEvent(waiter, min(deadline - self._store.clock(), LEADER_CHECK_SECONDS))
            with state_mutex:
                if waiter.state is WaiterState.RECEIVING:  # without an outcome: the releasing caller may have vanished
                    waiter.state = WaiterState.LEADING
                    background.release_later(self._store, primitive, waiter.claim)
                elif waiter.state is WaiterState.QUEUED and queue.leader() is None:
                    queue.promote(waiter)
                elif waiter.state is WaiterState.QUEUED and self._store.clock() >= deadline:
                    queue.remove(waiter)
                    waiter.state = WaiterState.LEFT

    def _leave(self, key: Any, queue: WaitQueue, waiter: Waiter) -> None:
        """Remove ``waiter`` from the queue. If it was the leader, the first waiter becomes the leader."""
        with state_mutex:
            waiter.state = WaiterState.LEFT
            queue.remove(waiter)
            if queue.leader() is not waiter:
                return
            if queue.waiters:
                queue.promote(queue.first())
            elif self._queues.get(key) is queue:
                del self._queues[key]

    # ── release ──────────────────────────────────────────────────────────────────────────────

    def release(self, primitive: Primitive, claim: Claim, keep: float) -> Flow[bool]:
        """Hand the lock over to the first local waiter, or release it in the store. Returns whether ``claim`` held it.

        The lock is released in the store without a local waiter, after too many hand-overs in a row, with ``keep``
        above 0, and if the algorithm or the kind of lock has no hand-over.
        """
        algorithm = self._store.algorithm
        hand_over = algorithm.hand_over if primitive.hands_over else None
        if not self._queues or keep > 0 or hand_over is None:
            return algorithm.release(primitive, claim, keep)
        return self._hand_over(primitive, claim, hand_over)

    def _hand_over(self, primitive: Primitive, claim: Claim, hand_over: HandOver) -> Flow[bool]:
        algorithm, waiter = self._store.algorithm, self._next_waiter(claim)
        if waiter is None:
            return (yield from algorithm.release(primitive, claim))
        lease, answered = None, False
        try:
            owner = waiter.claim.owner_since(self._store.clock())
            following = waiter.claim._replace(all_keys=claim.all_keys, owner=owner)
            with suppress(LockError):
                lease = yield from hand_over(primitive, claim, following)
                answered = True
        finally:
            with state_mutex:
                receiving = waiter.state is WaiterState.RECEIVING
                if receiving and lease is not None:
                    waiter.grant(lease)
                elif receiving:
                    waiter.lead()
            # The store may have granted the lock to the waiter: the reply was lost, or the waiter has left meanwhile.
            if waiter.lease is None:
                background.release_later(self._store, primitive, waiter.claim)
        if lease is not None:
            return True
        released = yield from algorithm.release(primitive, claim)
        return released or not answered  # without a reply, the hand-over may have released the lock

    def _next_waiter(self, claim: Claim) -> Waiter | None:
        """Remove and return the waiter that gets the lock next; ``None``: the lock must be released in the store."""
        with state_mutex:
            queue = self._queues.get(_queue_key(claim))
            if queue is None or not queue.waiters:
                return None
            now = self._store.clock()
            if not queue.hand_overs:
                queue.hand_overs_since = now
            if queue.hand_overs >= self._cohort or now - queue.hand_overs_since > HAND_OVER_SECONDS:
                queue.hand_overs = 0
                return None
            queue.hand_overs += 1
            waiter = queue.first()
            waiter.state = WaiterState.RECEIVING  # before the removal: an interrupt between them delays the waiter only
            queue.remove(waiter)
            return waiter


def _queue_key(claim: Claim) -> Any:
    # `all_keys` of a striped lock begins with another stripe each time. The waiters of an earlier generation belong to
    # the parent of a fork.
    return claim.stripe_set or claim.all_keys, running_loop(), fork.generation
