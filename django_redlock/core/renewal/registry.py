"""The leases of this process that are extended or released in the background, and the threads that do it.

There is a `RenewalThread` for each server of a store, also for locks of coroutines: an event loop that is busy for a
while must not lose its locks.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from functools import partial
from typing import Any

from ..contract import Store
from ..fork import on_fork
from ..primitives.base import Primitive
from ..values import Claim
from .thread import RenewalThread
from .work import SLACK, Entry, Orphan, Target

CANCEL_DELAY = 0.15  # seconds after which a claim is cancelled again: by then its last request has reached the server


class Renewal:
    """The entries by token, and the threads by server."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may use a lock, too. Not entered through a condition: that is Python code, and an
        # exception that a signal handler raises in there would leave the mutex locked.
        self._mutex = threading.RLock()
        self.entries: dict[bytes, Entry] = {}
        self._threads: dict[
            tuple[int, str], RenewalThread
        ] = {}  # by id(store), which must not be kept alive, and server

    def schedule(self, token: bytes, target: Target, delay: float) -> None:
        """Extend or release ``target`` in ``delay`` seconds. A token that is to be released is not extended again."""
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
        """Don't extend ``token`` any more. A release that is scheduled stays."""
        with self._mutex:
            entry = self.entries.get(token)
            if entry is not None and not isinstance(entry[1], Orphan):
                del self.entries[token]

    def held_counts(self) -> Counter[tuple[str, str]]:
        """The number of locks that this process holds now, by alias and kind."""
        targets = [target for _, target in list(self.entries.values()) if isinstance(target, weakref.ref)]
        locks = [lock for target in targets if (lock := target()) is not None and lock.remaining]
        return Counter((lock.store.alias, lock.primitive.kind) for lock in locks)

    def mark_lost(self, token: bytes, reason: str) -> None:
        """Mark the lease of ``token`` as lost, when the store has noticed that itself."""
        target = self.entries.get(token, (0.0, None))[1]
        lock = target() if isinstance(target, weakref.ref) else None
        lease = lock.current_lease() if lock is not None else None
        if lock is not None and lease is not None and lease.claim.token == token:
            lock.mark_lost(lease, reason)

    def release_later(
        self, store: Store, primitive: Primitive, claim: Claim, *, waited: bool = False, after: float = 0.0
    ) -> None:
        """Release ``claim`` in the background, ``after`` seconds from now at the earliest.

        The release is retried until the store has served it or the lease must have ended. ``waited``: the claim may
        also be listed as a waiter, or be granted by a request that is still in flight.
        """
        orphan = Orphan(store, primitive, claim, store.clock() + claim.ttl, waited)
        self.schedule(claim.token, orphan, after and after + SLACK)
        if waited:
            later = claim.all_attempts()
            self.schedule(later.token, orphan._replace(claim=later), CANCEL_DELAY)


def _server_of(target: Target) -> tuple[int, str]:
    """The store and the server of a target: a server of a Cluster that hangs delays no renewals on the others."""
    if isinstance(target, Orphan):
        store, keys = target.store, target.claim.keys
    else:
        lock: Any = target()  # alive: the caller has a reference
        store, keys = lock.store, lock.keys
    return id(store), store.server_of(keys)


renewal = Renewal()
on_fork(renewal.__init__)  # type: ignore[misc]  # the threads and the leases belong to the parent
