"""The queue of one process for one lock: the leader waits in the store, and the waiters wait behind the leader."""

from __future__ import annotations

import weakref

from ..values import Refusal
from .waiters import Waiter, WaiterState

HAND_OVER_SECONDS = 0.01  # seconds of hand-overs in a row, after which the lock is released to other processes


class WaitQueue:
    """The leader and the waiters of one lock. All methods but `on_refusal` are called under the local queue's mutex.

    ``leader()`` returns the leader. It returns ``None`` if the leader's flow, which has the only reference to it, has
    ended without leaving the queue. ``refusal``: the store's last refusal; ``None`` for none yet.
    """

    hand_overs, hand_overs_since = 0, 0.0  # the number of hand-overs in a row, and the time of the first hand-over
    refusal: Refusal | None = None

    def __init__(self, leader: Waiter) -> None:
        self.waiters: dict[int, Waiter] = {}  # by caller, in order of arrival
        self.set_leader(leader)

    def set_leader(self, waiter: Waiter) -> None:
        """Make ``waiter``, which is not in the queue, the leader."""
        waiter.state = WaiterState.LEADING
        self.leader, self._leading = weakref.ref(waiter), waiter.caller

    def add(self, waiter: Waiter) -> None:
        """Add ``waiter`` to the queue, unless its caller leads or waits already: then it asks the store itself.

        An example is a signal handler, which runs in the waiting thread: it must not wait for this thread.
        """
        if waiter.caller == self._leading or waiter.caller in self.waiters:
            waiter.state = WaiterState.LEADING
        else:
            self.waiters[waiter.caller] = waiter

    def remove(self, waiter: Waiter) -> bool:
        """Remove ``waiter`` from the queue. Returns whether the waiter was in the queue."""
        if self.waiters.get(waiter.caller) is not waiter:
            return False
        del self.waiters[waiter.caller]
        return True

    def on_refusal(self, refusal: Refusal) -> None:
        """Store a refusal by the store, for waiters whose time is up."""
        self.refusal = refusal

    def pop_receiver(self) -> Waiter:
        """Remove the first waiter, which a release now hands the lock over to, and return the waiter."""
        waiter = next(iter(self.waiters.values()))
        waiter.state = WaiterState.RECEIVING  # before the removal: an interrupt between them delays the waiter only
        return self.pop_first()

    def pop_first(self) -> Waiter:
        """Remove the first waiter from the queue and return the waiter."""
        return self.waiters.pop(next(iter(self.waiters)))

    def promote_first(self) -> None:
        """Make the first waiter the leader."""
        waiter = self.pop_first()
        self.set_leader(waiter)
        waiter.set()

    def promote_all(self) -> None:
        """Empty the queue, and wake every waiter so that each asks the store itself."""
        while self.waiters:
            self.pop_first().lead()

    def lead_if_orphaned(self, waiter: Waiter) -> bool:
        """Make ``waiter`` the leader if the leader has vanished. Returns whether the waiter now leads."""
        if self.leader() is not None or not self.remove(waiter):
            return False
        self.set_leader(waiter)
        return True

    def count_hand_over(self, now: float, cohort: int) -> bool:
        """Count a hand-over at ``now`` (monotonic seconds). ``cohort``: the largest number of hand-overs in a row.

        Returns ``False``, and restarts the count, if the lock must be released to other processes instead: after
        ``cohort`` hand-overs, or 10 ms after the first of them.
        """
        if not self.hand_overs:
            self.hand_overs_since = now
        if self.hand_overs >= cohort or now - self.hand_overs_since > HAND_OVER_SECONDS:
            self.hand_overs = 0
            return False
        self.hand_overs += 1
        return True
