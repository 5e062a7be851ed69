"""One waiter for each process and name: those who want the same lock queue here, and one of them waits in the store.

So do those who want any one of the same stripes.

A lock that is released while others queue may go straight to the next of them (Dice, Marathe and Shavit, "Lock
Cohorting", 2012). That takes one request, which ends one holding and begins the other; or none, if the store has just
said that it is held, and both renew alike: then the next goes on with the same lease, and tells the store soon if that
lasts. The one who waits in the store keeps its place there meanwhile, and after so many times in a row the lock is
freed for whoever is first there.
Threads are one cohort, the tasks of an event loop another: a loop that stands still holds up nobody but its own tasks.
"""

from __future__ import annotations

import math
import threading
import weakref
from typing import Any

from ...errors import LockError
from .. import fork
from ..context import caller, running_loop
from ..contract import Store
from ..flow.requests import Flow
from ..flow.scripts import script
from ..primitives.base import Primitive
from ..renewal import renewal
from ..values import Claim, Lease, Refusal, valid_until
from .waiters import AwaitTurn, Waiter, WakeEvent

FRESH_SECONDS = 0.005  # seconds for which what the store has said is good enough for the next of this process, too
HAND_OVER_SECONDS = 0.01  # seconds after which a lock that goes from hand to hand is freed all the same
LEADER_CHECK_SECONDS = 5.0  # seconds after which one who queues looks whether anybody still waits in the store
# Others don't queue: who holds an rlock may take it again before those who wait for it.
QUEUED_SCRIPTS = {"mutex_acquire", "timestamp_acquire", "striped_acquire"}
HAND_OVER_SCRIPTS = dict.fromkeys(("mutex_acquire", "striped_acquire"), script("mutex_hand_over"))


class LeaderToken:
    """Held by the flow that waits in the store: with the flow it is gone, however that ended."""

    __slots__ = ("__weakref__",)


class Inquiry:
    """A last question to the store, for all whose time is up: what one of them is told holds for the others."""

    __slots__ = ("answered", "bells", "refusal")

    def __init__(self) -> None:
        self.answered = math.inf  # when
        self.bells: list[WakeEvent] = []
        self.refusal: Refusal | None = None


class WaitQueue:
    """Those who want one lock: who waits in the store, and who queues behind."""

    hand_overs, hand_overs_since = 0, 0.0  # how often the lock went from hand to hand, and since when
    inquiry: Inquiry | None = None  # the last one

    def __init__(self, leader: int, leader_token: LeaderToken | Waiter) -> None:
        self.waiters: dict[int, Waiter] = {}  # caller -> place, first come first
        self.leader = leader
        self.leader_token = weakref.ref(leader_token)

    def set_leader(self, leader: int, leader_token: LeaderToken | Waiter) -> None:
        """Who waits in the store from now on."""
        self.leader = leader
        self.leader_token = weakref.ref(leader_token)

    def pop_first(self) -> tuple[int, Waiter]:
        """Take the first out of the queue."""
        me = next(iter(self.waiters))
        return me, self.waiters.pop(me)


class LocalQueue:
    """Stands before a store's rule. ``cohort``: how often in a row a lock may go from hand to hand."""

    def __init__(self, store: Store, cohort: int) -> None:
        self._store = store
        self._cohort = cohort
        self._reset()
        fork.on_fork(self._reset)  # those who queue are the parent's

    def _reset(self) -> None:
        self._mutex = threading.RLock()  # reentrant: a signal's handler may use a lock too
        self._queues: dict[Any, WaitQueue] = {}

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """`Rule.acquire`; first, as long as others of this process wait for the same lock, wait for one's turn."""
        key, me, post, ticket = _key(claim), caller(), LeaderToken(), None
        new = WaitQueue(me, post)
        if (lane := self._queues.setdefault(key, new)) is not new:  # one step: nobody need be kept out of here so far
            with self._mutex:
                lane = self._queues.setdefault(key, new)
                if me != lane.leader and me not in lane.waiters:  # else we are in the handler of a signal
                    ticket = lane.waiters[me] = Waiter(claim)
        try:
            if ticket is not None:
                yield from self._wait_for_turn(lane, me, ticket, deadline)
                if ticket.lease is not None:
                    lease, ticket.lease = ticket.lease, None
                    return lease
                claim = claim.next_attempt(self._store.clock())
            if ticket is not None and self._store.clock() >= deadline:
                outcome = yield from self._inquire(lane, primitive, claim, deadline)
            else:
                outcome = yield from self._store.algorithm.acquire(primitive, claim, deadline)
            if isinstance(outcome, Lease) and not claim.more_keys:  # what goes on with other stripes counts as before
                lane.hand_overs = 0
            return outcome
        except LockError:
            if ticket is None or ticket.promoted:
                self._promote_all(lane)  # or each would wait for the same error, one after another
            raise
        finally:
            self._leave(key, lane, me, post if ticket is None else ticket)
            if ticket is not None and ticket.lease is not None:  # interrupted, and it was there already
                renewal.release_later(self._store, primitive, ticket.lease.claim)

    def _wait_for_turn(self, lane: WaitQueue, me: int, ticket: Waiter, deadline: float) -> Flow[None]:
        """Return with a lease, or when it is time to ask the store oneself."""
        while True:
            chosen = ticket.receiving  # it is a matter of one request then
            left = deadline - self._store.clock()
            yield AwaitTurn(ticket, LEADER_CHECK_SECONDS if chosen else min(left, LEADER_CHECK_SECONDS))
            with self._mutex:
                if ticket.lease is not None or ticket.promoted:
                    return
                if chosen:  # who chose it has vanished; what it asked for may be under way
                    ticket.abandoned, ticket.lease = True, _ended(ticket.claim)
                elif lane.leader_token() is None and lane.waiters.pop(me, None) is ticket:
                    lane.set_leader(me, ticket)
                    return
                elif self._store.clock() >= deadline and lane.waiters.pop(me, None) is ticket:
                    return

    def _inquire(self, lane: WaitQueue, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Ask the store a last time, unless another one whose time is up as well does so, or has just done so."""
        while True:
            with self._mutex:
                asked = lane.inquiry
                if asked is None or self._store.clock() - asked.answered > FRESH_SECONDS:
                    mine = lane.inquiry = Inquiry()
                    break
                if asked.refusal is not None:
                    return asked.refusal
                bell = WakeEvent()
                asked.bells.append(bell)
            yield AwaitTurn(bell, LEADER_CHECK_SECONDS)
            with self._mutex:
                if asked.refusal is not None:
                    return asked.refusal
                if lane.inquiry is asked:  # it was interrupted, or takes long
                    lane.inquiry = None
        try:
            outcome = yield from self._store.algorithm.acquire(primitive, claim, deadline)
            if isinstance(outcome, Refusal):
                mine.refusal = outcome
            return outcome
        finally:
            with self._mutex:
                mine.answered = self._store.clock()
                if mine.refusal is None and lane.inquiry is mine:  # granted, or an error: the others ask
                    lane.inquiry = None
                bells, mine.bells = mine.bells, []
            for bell in bells:
                bell.set()

    def _leave(self, key: Any, lane: WaitQueue, me: int, post: LeaderToken | Waiter) -> None:
        with self._mutex:
            if isinstance(post, Waiter):
                post.abandoned = True
                if lane.waiters.get(me) is post:
                    del lane.waiters[me]
            if lane.leader_token() is not post:
                return
            if lane.waiters:
                following, ticket = lane.pop_first()
                lane.set_leader(following, ticket)
                ticket.promoted = True
                ticket.set()
            elif self._queues.get(key) is lane:
                del self._queues[key]

    def _promote_all(self, lane: WaitQueue) -> None:
        with self._mutex:
            tickets = list(lane.waiters.values())
            lane.waiters.clear()
            for ticket in tickets:
                ticket.promoted = True
        for ticket in tickets:
            ticket.set()

    # ── release ──────────────────────────────────────────────────────────────────────────────

    def release(self, primitive: Primitive, lease: Lease, keep: float) -> Flow[bool]:
        """`Rule.release`; if others of this process queue, the first of them gets the lock, as long as that is fair."""
        rule, hand_over = self._store.algorithm, getattr(self._store.algorithm, "hand_over", None)
        if not self._queues or keep > 0 or hand_over is None or primitive.acquire_script.name not in HAND_OVER_SCRIPTS:
            return rule.release(primitive, lease.claim, keep)
        return self._hand_over(primitive, lease, hand_over)

    def _hand_over(self, primitive: Primitive, lease: Lease, hand_over: Any) -> Flow[bool]:
        rule = self._store.algorithm
        ticket = self._next_waiter(_key(lease.claim), lease)
        if ticket is None:
            return (yield from rule.release(primitive, lease.claim))
        if ticket.lease is not None:
            return True
        outcome, unsure = None, False
        try:
            following = ticket.claim.for_keys(lease.claim.keys)
            following = following._replace(owner=following.owner_since(self._store.clock()))
            outcome = yield from hand_over(HAND_OVER_SCRIPTS[primitive.acquire_script.name], lease.claim, following)
        except LockError:
            unsure = True
        finally:
            self._deliver(primitive, ticket, outcome)
        if outcome is not None:
            return True
        return (yield from rule.release(primitive, lease.claim)) or unsure

    def _next_waiter(self, key: Any, lease: Lease) -> Waiter | None:
        """Whose turn it is; at once with a lease, where the store need not be asked."""
        now = self._store.clock()
        with self._mutex:
            lane = self._queues.get(key)
            if lane is None or not lane.waiters or lease.generation != fork.generation:
                return None
            if not lane.hand_overs:
                lane.hand_overs_since = now
            if lane.hand_overs >= self._cohort or now - lane.hand_overs_since > HAND_OVER_SECONDS:
                lane.hand_overs = 0
                return None
            lane.hand_overs += 1
            _, ticket = lane.pop_first()
            if (
                lease.claim.transferable
                and ticket.claim.transferable
                and ticket.claim.ttl == lease.ttl
                and _is_fresh(lease, now)
            ):
                ticket.lease = lease.handed_over(ticket.claim, now)
                ticket.set()
            else:
                ticket.receiving = True
            return ticket

    def _deliver(self, primitive: Primitive, ticket: Waiter, outcome: Lease | None) -> None:
        with self._mutex:
            gone = ticket.abandoned
            if not gone:
                # One that has ended: whoever gets it frees it, since it may have been granted, and asks again.
                ticket.lease = outcome or _ended(ticket.claim)
        if gone:
            renewal.release_later(self._store, primitive, ticket.claim)
        else:
            ticket.set()


def _is_fresh(lease: Lease, now: float) -> bool:
    return valid_until(now, lease.ttl) - lease.valid_until < FRESH_SECONDS


def _key(claim: Claim) -> Any:
    loop, lane = running_loop(), claim.queue_key or claim.name
    return lane if loop is None else (lane, loop)


def _ended(claim: Claim) -> Lease:
    return Lease.granted(claim, -math.inf, 0)
