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

from ..errors import LockError
from . import fork
from .callers import caller, running_loop
from .lease import Claim, Lease, Refusal, valid_until
from .primitives import Primitive
from .renewal import renewal
from .requests import Flow
from .scripts import script
from .store import Store
from .tickets import Bell, Ticket, Turn

FRESH = 0.005  # seconds for which what the store has said is good enough for the next of this process, too
SPAN = 0.01  # seconds after which a lock that goes from hand to hand is freed all the same
LOOK = 5.0  # seconds after which one who queues looks whether anybody still waits in the store
# Others don't queue: who holds an rlock may take it again before those who wait for it.
QUEUES = {"mutex_acquire", "timestamp_acquire", "any_acquire"}
HANDS_OVER = dict.fromkeys(("mutex_acquire", "any_acquire"), script("mutex_hand_over"))


class Post:
    """Held by the flow that waits in the store: with the flow it is gone, however that ended."""

    __slots__ = ("__weakref__",)


class Inquiry:
    """A last question to the store, for all whose time is up: what one of them is told holds for the others."""

    __slots__ = ("answered", "bells", "refusal")

    def __init__(self) -> None:
        self.answered = math.inf  # when
        self.bells: list[Bell] = []
        self.refusal: Refusal | None = None


class Lane:
    """Those who want one lock: who waits in the store, and who queues behind."""

    hands, began = 0, 0.0  # how often the lock went from hand to hand, and since when
    inquiry: Inquiry | None = None  # the last one

    def __init__(self, keeper: int, post: Post | Ticket) -> None:
        self.queue: dict[int, Ticket] = {}  # caller -> place, first come first
        self.keeper = keeper
        self.post = weakref.ref(post)

    def staff(self, keeper: int, post: Post | Ticket) -> None:
        """Who waits in the store from now on."""
        self.keeper = keeper
        self.post = weakref.ref(post)

    def first(self) -> tuple[int, Ticket]:
        """Take the first out of the queue."""
        me = next(iter(self.queue))
        return me, self.queue.pop(me)


class Turnstile:
    """Stands before a store's rule. ``cohort``: how often in a row a lock may go from hand to hand."""

    def __init__(self, store: Store, cohort: int) -> None:
        self._store = store
        self._cohort = cohort
        self._begin()
        fork.on_fork(self._begin)  # those who queue are the parent's

    def _begin(self) -> None:
        self._mutex = threading.RLock()  # reentrant: a signal's handler may use a lock too
        self._lanes: dict[Any, Lane] = {}

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """`Rule.acquire`; first, as long as others of this process wait for the same lock, wait for one's turn."""
        key, me, post, ticket = _key(claim), caller(), Post(), None
        new = Lane(me, post)
        if (lane := self._lanes.setdefault(key, new)) is not new:  # one step: nobody need be kept out of here so far
            with self._mutex:
                lane = self._lanes.setdefault(key, new)
                if me != lane.keeper and me not in lane.queue:  # else we are in the handler of a signal
                    ticket = lane.queue[me] = Ticket(claim)
        try:
            if ticket is not None:
                yield from self._queue(lane, me, ticket, deadline)
                if ticket.lease is not None:
                    lease, ticket.lease = ticket.lease, None
                    return lease
            if ticket is not None and self._store.clock() >= deadline:
                outcome = yield from self._inquire(lane, primitive, claim, deadline)
            else:
                outcome = yield from self._store.rule.acquire(primitive, claim, deadline)
            if isinstance(outcome, Lease) and not claim.others:  # what goes on with other stripes counts as before
                lane.hands = 0
            return outcome
        except LockError:
            if ticket is None or ticket.called:
                self._call_all(lane)  # or each would wait for the same error, one after another
            raise
        finally:
            self._leave(key, lane, me, post if ticket is None else ticket)
            if ticket is not None and ticket.lease is not None:  # interrupted, and it was there already
                renewal.free(self._store, primitive, ticket.lease.claim)

    def _queue(self, lane: Lane, me: int, ticket: Ticket, deadline: float) -> Flow[None]:
        """Return with a lease, or when it is time to ask the store oneself."""
        while True:
            chosen = ticket.chosen  # it is a matter of one request then
            left = deadline - self._store.clock()
            yield Turn(ticket, LOOK if chosen else min(left, LOOK))
            with self._mutex:
                if ticket.lease is not None or ticket.called:
                    return
                if chosen:  # who chose it has vanished; what it asked for may be under way
                    ticket.gone, ticket.lease = True, _ended(ticket.claim)
                elif lane.post() is None and lane.queue.pop(me, None) is ticket:
                    lane.staff(me, ticket)
                    return
                elif self._store.clock() >= deadline and lane.queue.pop(me, None) is ticket:
                    return

    def _inquire(self, lane: Lane, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Ask the store a last time, unless another one whose time is up as well does so, or has just done so."""
        while True:
            with self._mutex:
                asked = lane.inquiry
                if asked is None or self._store.clock() - asked.answered > FRESH:
                    mine = lane.inquiry = Inquiry()
                    break
                if asked.refusal is not None:
                    return asked.refusal
                bell = Bell()
                asked.bells.append(bell)
            yield Turn(bell, LOOK)
            with self._mutex:
                if asked.refusal is not None:
                    return asked.refusal
                if lane.inquiry is asked:  # it was interrupted, or takes long
                    lane.inquiry = None
        try:
            outcome = yield from self._store.rule.acquire(primitive, claim, deadline)
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
                bell.ring()

    def _leave(self, key: Any, lane: Lane, me: int, post: Post | Ticket) -> None:
        with self._mutex:
            if isinstance(post, Ticket):
                post.gone = True
                if lane.queue.get(me) is post:
                    del lane.queue[me]
            if lane.post() is not post:
                return
            if lane.queue:
                following, ticket = lane.first()
                lane.staff(following, ticket)
                ticket.called = True
                ticket.ring()
            elif self._lanes.get(key) is lane:
                del self._lanes[key]

    def _call_all(self, lane: Lane) -> None:
        with self._mutex:
            tickets = list(lane.queue.values())
            lane.queue.clear()
            for ticket in tickets:
                ticket.called = True
        for ticket in tickets:
            ticket.ring()

    # ── release ──────────────────────────────────────────────────────────────────────────────

    def release(self, primitive: Primitive, lease: Lease, keep: float) -> Flow[bool]:
        """`Rule.release`; if others of this process queue, the first of them gets the lock, as long as that is fair."""
        rule, hand_over = self._store.rule, getattr(self._store.rule, "hand_over", None)
        if not self._lanes or keep > 0 or hand_over is None or primitive.acquire.name not in HANDS_OVER:
            return rule.release(primitive, lease.claim, keep)
        return self._pass_on(primitive, lease, hand_over)

    def _pass_on(self, primitive: Primitive, lease: Lease, hand_over: Any) -> Flow[bool]:
        rule = self._store.rule
        ticket = self._next(_key(lease.claim), lease)
        if ticket is None:
            return (yield from rule.release(primitive, lease.claim))
        if ticket.lease is not None:
            return True
        outcome, unsure = None, False
        try:
            following = ticket.claim.at(lease.claim.keys)
            outcome = yield from hand_over(HANDS_OVER[primitive.acquire.name], lease.claim, following)
        except LockError:
            unsure = True
        finally:
            self._give(primitive, ticket, outcome)
        if outcome is not None:
            return True
        return (yield from rule.release(primitive, lease.claim)) or unsure

    def _next(self, key: Any, lease: Lease) -> Ticket | None:
        """Whose turn it is; at once with a lease, where the store need not be asked."""
        now = self._store.clock()
        with self._mutex:
            lane = self._lanes.get(key)
            if lane is None or not lane.queue or lease.generation != fork.generation:
                return None
            if not lane.hands:
                lane.began = now
            if lane.hands >= self._cohort or now - lane.began > SPAN:
                lane.hands = 0
                return None
            lane.hands += 1
            _, ticket = lane.first()
            if lease.claim.steady and ticket.claim.steady and ticket.claim.ttl == lease.ttl and _is_fresh(lease, now):
                ticket.lease = lease.handed_on(ticket.claim, now)
                ticket.ring()
            else:
                ticket.chosen = True
            return ticket

    def _give(self, primitive: Primitive, ticket: Ticket, outcome: Lease | None) -> None:
        with self._mutex:
            gone = ticket.gone
            if not gone:
                # One that has ended: whoever gets it frees it, since it may have been granted, and asks again.
                ticket.lease = outcome or _ended(ticket.claim)
        if gone:
            renewal.free(self._store, primitive, ticket.claim)
        else:
            ticket.ring()


def _is_fresh(lease: Lease, now: float) -> bool:
    return valid_until(now, lease.ttl) - lease.valid_until < FRESH


def _key(claim: Claim) -> Any:
    loop, lane = running_loop(), claim.lane or claim.name
    return lane if loop is None else (lane, loop)


def _ended(claim: Claim) -> Lease:
    return Lease.granted(claim, -math.inf, 0)
