"""The local queue: threads and tasks of one process that wait for the same lock, or for the same stripes.

The first caller, the leader, waits in the store. Later callers wait behind the leader. A release may hand the lock over
to the first local waiter (Dice, Marathe and Shavit, "Lock Cohorting", 2012):

- with one request, which ends one acquisition and begins the next;
- without a request, if the store has just confirmed the lease, and if both handles renew the lease with the same ttl.
  The next handle continues with the lease, and the store learns the new owner with the next renewal.

The leader keeps its place in the store. After ``cohort`` hand-overs in a row, or after 10 ms of hand-overs, the lock is
released to the first waiter in the store. Threads have one queue, and the tasks of each event loop have their own, so
that a blocked event loop delays only its own tasks. `WaiterState` lists the states of a waiter.
"""

from __future__ import annotations

import math
from copy import copy
from typing import Any

from ...errors import LockError, LockUnavailable
from .. import fork
from ..caller_identity import caller, running_loop
from ..contract import Store
from ..flow.requests import Flow
from ..primitives.base import Primitive
from ..renewal.registry import renewal
from ..thread_mutex import new_mutex
from ..values import Claim, Lease, Refusal, valid_until
from .wait_queue import LastAttempt, LeaderToken, WaitQueue
from .waiters import AwaitTurn, Waiter, WaiterState
from .wake_event import WakeEvent

FRESH_SECONDS = 0.005  # seconds for which further callers of this process rely on the last reply of the store
LEADER_CHECK_SECONDS = 5.0  # seconds after which a waiter checks again that the leader still exists
# Only these kinds of locks have local queues. A reentrant lock has none: its holder may acquire again before waiters.
QUEUED_SCRIPTS = {"mutex_acquire", "timestamp_acquire", "striped_acquire"}
HANDED_OVER_SCRIPTS = QUEUED_SCRIPTS - {"timestamp_acquire"}


class LocalQueue:
    """The queues of this process for the locks of one store. ``cohort``: the largest number of hand-overs in a row."""

    def __init__(self, store: Store, cohort: int) -> None:
        self._store = store
        self._cohort = cohort
        self._reset()
        fork.on_fork(self._reset)  # the waiters belong to the parent

    def _reset(self) -> None:
        self._mutex = new_mutex()
        self._queues: dict[Any, WaitQueue] = {}

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Acquire the lock. The first caller, the leader, asks the store. Later callers wait behind the leader.

        A waiting caller gets the lease of a releasing holder, or becomes the leader, or asks the store at ``deadline``.
        Arguments, result and errors are those of `Algorithm.acquire`.
        """
        key, me, token = _queue_key(claim), caller(), LeaderToken()
        new = WaitQueue(me, token)
        queue = self._queues.setdefault(key, new)  # atomic: the first caller needs no mutex
        waiter = None if queue is new else Waiter(me, claim)
        try:
            if waiter is not None:
                with self._mutex:
                    queue = self._queues.setdefault(key, new)
                    if not queue.add(waiter):  # an interrupt after this leaves the queue, too
                        waiter = None
            if waiter is not None:
                yield from self._wait_for_turn(queue, waiter, deadline)
                if waiter.lease is not None:
                    lease, waiter.lease = waiter.lease, None
                    return lease
                claim = claim.next_attempt(self._store.clock())
            if waiter is not None and self._store.clock() >= deadline:
                outcome = yield from self._last_attempt(queue, primitive, claim, deadline)
            else:
                outcome = yield from self._store.algorithm.acquire(primitive, claim, deadline)
            # A grant by the store begins a new row of hand-overs. Not for stripes: the other stripes share the row.
            if isinstance(outcome, Lease) and len(claim.all_keys) == 1:
                queue.hand_overs = 0
            return outcome
        except LockError:
            if waiter is None or waiter.state is WaiterState.LEADING:
                with self._mutex:
                    queue.promote_all()  # so that the waiters get the error at once, not one after another
            raise
        finally:
            self._leave(key, queue, token if waiter is None or queue is new else waiter)
            if waiter is not None and waiter.lease is not None:  # interrupted after the grant
                renewal.release_later(self._store, primitive, waiter.lease.claim)

    def _wait_for_turn(self, queue: WaitQueue, waiter: Waiter, deadline: float) -> Flow[None]:
        """Wait until ``waiter`` has a lease or is the leader, or until ``deadline`` (monotonic seconds).

        The caller of a waiter that has no lease afterwards must ask the store.
        """
        while True:
            receiving = waiter.state is WaiterState.RECEIVING  # then the deadline does not end the wait
            left = deadline - self._store.clock()
            yield AwaitTurn(waiter, LEADER_CHECK_SECONDS if receiving else min(left, LEADER_CHECK_SECONDS))
            with self._mutex:
                if waiter.state in (WaiterState.GRANTED, WaiterState.LEADING):
                    return
                if receiving:  # the releasing caller has vanished; its request may still be running
                    waiter.state, waiter.lease = WaiterState.LEFT, _unconfirmed_lease(waiter.claim)
                    return
                if queue.lead_if_orphaned(waiter):
                    return
                # A waiter that is queued is missing in the queue if an interrupt has ended its hand-over.
                missing = queue.waiters.get(waiter.caller) is not waiter
                if waiter.state is WaiterState.QUEUED and (missing or self._store.clock() >= deadline):
                    queue.remove(waiter)
                    waiter.state = WaiterState.EXPIRED
                    return

    def _last_attempt(
        self, queue: WaitQueue, primitive: Primitive, claim: Claim, deadline: float
    ) -> Flow[Lease | Refusal]:
        """Ask the store once more for a waiter whose deadline has passed. Returns the lease or the refusal.

        A queue has only one such request in flight. If another waiter's request is in flight, waits for its end. If the
        other request is refused or fails with ``LockUnavailable``, or did so in the last 5 ms, this waiter shares that
        outcome and sends no request: a store that hangs must not delay the waiters one after another.
        """
        while True:
            with self._mutex:
                other = queue.last_attempt
                if other is None or self._store.clock() - other.ended_at > FRESH_SECONDS:
                    own = queue.last_attempt = LastAttempt()
                    break
                if (refusal := other.shared_outcome()) is not None:
                    return refusal
                ended = WakeEvent()
                other.wake_events.append(ended)
            yield AwaitTurn(ended, LEADER_CHECK_SECONDS)
            with self._mutex:
                if (refusal := other.shared_outcome()) is not None:
                    return refusal
                if other.ended_at == math.inf:  # the other waiter is slow, or was interrupted before it asked
                    own = queue.last_attempt = LastAttempt()
                    break
        try:
            outcome = yield from self._store.algorithm.acquire(primitive, claim, deadline)
            if isinstance(outcome, Refusal):
                own.outcome = outcome
            return outcome
        except LockUnavailable as error:
            own.outcome = copy(error)  # without the traceback, which would keep this frame alive
            raise
        finally:
            with self._mutex:
                own.ended_at = self._store.clock()
                if own.outcome is None and queue.last_attempt is own:  # granted or interrupted: the next waiter asks
                    queue.last_attempt = None
                wake_events, own.wake_events = own.wake_events, []
            for event in wake_events:
                event.set()

    def _leave(self, key: Any, queue: WaitQueue, token: LeaderToken | Waiter) -> None:
        """Remove the caller from the queue. If the caller was the leader, the first waiter becomes the leader.

        ``token``: the caller's `Waiter`, or the `LeaderToken` of a caller that never waited.
        """
        with self._mutex:
            if isinstance(token, Waiter):
                token.state = WaiterState.LEFT
                queue.remove(token)
            if queue.leader_token() is not token:
                return
            if queue.waiters:
                queue.promote_first()
            elif self._queues.get(key) is queue:
                del self._queues[key]

    # ── release ──────────────────────────────────────────────────────────────────────────────

    def release(self, primitive: Primitive, lease: Lease, keep: float, handed_over: list[Waiter]) -> Flow[bool]:
        """Hand the lock over to the first local waiter, or release it in the store. Returns whether it was still held.

        ``handed_over``: a list. The waiter is appended before a hand-over without a request, see `Gate.release`.

        The lock is released in the store if there is no local waiter, after too many hand-overs in a row, if it stays
        taken for ``keep`` seconds, and if the algorithm or the kind of lock has no hand-over.
        """
        algorithm = self._store.algorithm
        hand_over = getattr(algorithm, "hand_over", None)
        if not self._queues or keep > 0 or not hand_over or primitive.acquire_script.name not in HANDED_OVER_SCRIPTS:
            return algorithm.release(primitive, lease.claim, keep)
        return self._hand_over(primitive, lease, hand_over, handed_over)

    def _hand_over(self, primitive: Primitive, lease: Lease, hand_over: Any, handed_over: list[Waiter]) -> Flow[bool]:
        algorithm = self._store.algorithm
        waiter = self._next_waiter(lease, handed_over)
        if waiter is None:
            return (yield from algorithm.release(primitive, lease.claim))
        if handed_over:
            return True
        outcome, unanswered = None, False
        try:
            owner = waiter.claim.owner_since(self._store.clock())
            claim = waiter.claim._replace(all_keys=lease.claim.all_keys, owner=owner)
            outcome = yield from hand_over(lease.claim, claim)
        except LockError:
            unanswered = True
        finally:
            self._deliver(primitive, waiter, outcome)
        if outcome is not None:
            return True
        return (yield from algorithm.release(primitive, lease.claim)) or unanswered

    def _next_waiter(self, lease: Lease, handed_over: list[Waiter]) -> Waiter | None:
        """Return the waiter that gets the lock next; ``None`` if the lock must be released in the store.

        If no request is needed, appends the waiter to ``handed_over``, and gives the lease to the waiter.
        """
        now = self._store.clock()
        with self._mutex:
            queue = self._queues.get(_queue_key(lease.claim))
            if queue is None or not queue.waiters:
                return None
            if not queue.count_hand_over(now, self._cohort):
                return None
            waiter = queue.pop_first()
            if lease.suits(waiter.claim) and _is_fresh(lease, now):
                following = lease.handed_over(waiter.claim, now)
                handed_over.append(waiter)
                waiter.grant(following)
            else:
                waiter.state = WaiterState.RECEIVING
            return waiter

    def _deliver(self, primitive: Primitive, waiter: Waiter, outcome: Lease | None) -> None:
        """Give ``waiter`` the outcome of a hand-over request: a lease, or ``None`` if the store has confirmed none.

        If the waiter has stopped waiting, the lease is released in the background.
        """
        with self._mutex:
            if waiter.state is WaiterState.RECEIVING:
                waiter.grant(outcome or _unconfirmed_lease(waiter.claim))
                return
        renewal.release_later(self._store, primitive, waiter.claim)


def _is_fresh(lease: Lease, now: float) -> bool:
    return valid_until(now, lease.ttl) - lease.valid_until < FRESH_SECONDS


def _queue_key(claim: Claim) -> Any:
    loop, key = running_loop(), claim.payload or claim.name
    return key if loop is None else (key, loop)


def _unconfirmed_lease(claim: Claim) -> Lease:
    """Return a lease that has already ended, for a hand-over request without a reply.

    The store may have granted ``claim``, so the waiter releases it in the store and asks again.
    """
    return Lease.granted(claim, -math.inf, 0)
