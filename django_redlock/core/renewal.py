"""Locks that are watched in the background: renewed when they are due, and freed when an interrupted caller left them.

A `RenewalThread` for each server of a store does it, for locks that were taken by coroutines too: an event loop that is
busy for a while must not lose its locks.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from functools import partial
from typing import Any

from .contract import Store
from .fork import on_fork
from .primitives.base import Primitive
from .renewal_thread import SLACK, Entry, Orphan, RenewalThread, Target
from .values import Claim

__all__ = ["SLACK", "Orphan", "renewal"]

CANCEL_DELAY = (
    0.15  # seconds after which one who was interrupted leaves the queues again: what it asked has arrived by then
)


class Renewal:
    """What is watched, by token, and the threads that see to it."""

    def __init__(self) -> None:
        # Reentrant: a signal's handler may use a lock too. Entered as it is, not through a condition: that is Python,
        # and what a signal's handler raises in there would leave it locked for good.
        self._mutex = threading.RLock()
        self.entries: dict[bytes, Entry] = {}
        # By the server, and by the id of the store, of which it must not keep hold.
        self._threads: dict[tuple[int, str], RenewalThread] = {}

    def schedule(self, token: bytes, target: Target, delay: float) -> None:
        """See to ``target`` in ``delay`` seconds. What is to be freed stays so, and is not renewed any more."""
        due = time.monotonic() + delay
        place = _server_of(target)
        with self._mutex:
            if token in self.entries and isinstance(self.entries[token][1], Orphan) and not isinstance(target, Orphan):
                return
            if (thread := self._threads.get(place)) is None:
                ended = partial(self._threads.pop, place, None)
                thread = self._threads[place] = RenewalThread(self._mutex, self.entries, ended)
            thread.add(token, target, due)
        thread.ensure_started()

    def cancel(self, token: bytes) -> None:
        """``token`` holds nothing any more. What is to be freed is freed all the same."""
        with self._mutex:
            entry = self.entries.get(token)
            if entry is not None and not isinstance(entry[1], Orphan):
                del self.entries[token]

    def held_counts(self) -> Counter[tuple[str, str]]:
        """How many locks this process holds now, by alias and kind."""
        targets = [target for _, target in list(self.entries.values()) if isinstance(target, weakref.ref)]
        locks = [lock for target in targets if (lock := target()) is not None and lock.remaining]
        return Counter((lock.store.alias, lock.primitive.kind) for lock in locks)

    def mark_lost(self, token: bytes, reason: str) -> None:
        """The store has found out by itself that what ``token`` held is gone."""
        target = self.entries.get(token, (0.0, None))[1]
        lock = target() if isinstance(target, weakref.ref) else None
        lease = lock.current_lease() if lock is not None else None
        if lock is not None and lease is not None and lease.claim.token == token:
            lock.mark_lost(lease, reason)

    def release_later(
        self, store: Store, primitive: Primitive, claim: Claim, *, waited: bool = False, after: float = 0.0
    ) -> None:
        """Free ``claim`` soon, from the thread, and not before ``after`` seconds are over.

        It is repeated while the store can't be asked and the lease may last.
        """
        orphan = Orphan(store, primitive, claim, store.clock() + claim.ttl, waited)
        self.schedule(claim.token, orphan, after and after + SLACK)
        if waited:
            later = claim.all_attempts()
            self.schedule(later.token, orphan._replace(claim=later), CANCEL_DELAY)


def _server_of(target: Target) -> tuple[int, str]:
    """The store and its server that a target is on: a server of a Cluster that hangs delays no other's renewals."""
    if isinstance(target, Orphan):
        store, keys = target.store, target.claim.keys
    else:
        lock: Any = target()  # it lives
        store, keys = lock.store, lock.keys
    return id(store), store.server_of(keys)


renewal = Renewal()
on_fork(renewal.__init__)  # type: ignore[misc]  # the threads and the locks that they watched are the parent's
