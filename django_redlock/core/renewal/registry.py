"""Registry of the leases that this process extends or releases in the background, and of the renewal threads.

Each server of a store has a `RenewalThread`. Threads renew the locks of asyncio tasks, too, so that a busy event loop
does not lose its locks.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from functools import partial
from typing import Any

from ..contract import Orphan, Store
from ..primitives.base import Primitive
from ..process.fork import on_fork
from ..process.mutex import new_mutex
from ..values import Claim
from .thread import SLACK, Entry, RenewalThread, Target
from .work import serve

CANCEL_DELAY = 0.15  # seconds after which a claim is cancelled again, when its last request has reached the server


class Renewal:
    """The leases to extend and the claims to release, by token, and a renewal thread for each server."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may use a lock, too. Always entered directly, never through a condition: a
        # condition is Python code, and an exception of a signal handler in that code would leave the mutex locked.
        self._mutex = new_mutex()
        self.entries: dict[bytes, Entry] = {}
        self._threads: dict[
            tuple[int, str], RenewalThread
        ] = {}  # by id(store) and server; a reference would keep the store alive

    def reset(self) -> None:
        """Forget all leases and threads, which belong to the parent of a fork."""
        self.entries.clear()
        self._threads.clear()

    def schedule(self, token: bytes, target: Target, delay: float) -> None:
        """Schedule the work on ``target`` in ``delay`` seconds: extend the lease of a handle, or release an `Orphan`.

        ``token``: the token of the lease or claim. Replaces an earlier entry with this token, but an extension never
        replaces a scheduled release.
        """
        due = time.monotonic() + delay
        place = _server_of(target)
        with self._mutex:
            if token in self.entries and isinstance(self.entries[token][1], Orphan) and not isinstance(target, Orphan):
                return
            if (thread := self._threads.get(place)) is None:
                ended = partial(self._threads.pop, place, None)
                thread = self._threads[place] = RenewalThread(self._mutex, self.entries, serve, ended)
            thread.add(token, target, due)
        thread.ensure_started()

    def cancel(self, token: bytes) -> None:
        """Cancel the extension that is scheduled for ``token``. A scheduled release stays."""
        with self._mutex:
            entry = self.entries.get(token)
            if entry is not None and not isinstance(entry[1], Orphan):
                del self.entries[token]

    def held_counts(self) -> Counter[tuple[str, str]]:
        """Return the number of locks that this process holds now, by alias of the store and kind of lock."""
        targets = [target for _, target in list(self.entries.values()) if isinstance(target, weakref.ref)]
        locks = [lock for target in targets if (lock := target()) is not None and lock.remaining]
        return Counter((lock.store.alias, lock.primitive.kind) for lock in locks)

    def mark_lost(self, token: bytes, reason: str) -> None:
        """Mark the lease of ``token`` as lost. ``reason``: a text for people.

        Called by stores that notice a loss by themselves.
        """
        target = self.entries.get(token, (0.0, None))[1]
        lock = target() if isinstance(target, weakref.ref) else None
        lease = lock.current_lease() if lock is not None else None
        if lock is not None and lease is not None and lease.claim.token == token:
            lock.mark_lost(lease, reason)

    def release_later(
        self,
        store: Store,
        primitive: Primitive,
        claim: Claim,
        *,
        waited: bool = False,
        after: float = 0.0,
        keep_until: float = 0.0,
    ) -> None:
        """Release ``claim`` in the background, ``after`` seconds from now at the earliest.

        The release is retried until the store has served the request, or until every lease of the claim must have
        ended.

        - ``keep_until``: the lock stays taken until this time (monotonic seconds by the store's clock), as after a
          release within ``min_hold``.
        - ``waited``: ``True`` if the store may list the claim as a waiter, or if a request in flight may still be
          granted. The claim is then cancelled (`Algorithm.cancel`), which also removes it from the waiters.
        """
        # Not the claim's ttl: the lease may have been extended to a longer ttl.
        orphan = Orphan(store, primitive, claim, store.clock() + store.max_ttl, waited, keep_until)
        self.schedule(claim.token, orphan, after and after + SLACK)
        if waited:
            later = claim.all_attempts()
            self.schedule(later.token, orphan._replace(claim=later), CANCEL_DELAY)


def _server_of(target: Target) -> tuple[int, str]:
    """Return the store of ``target``, as its id, and the address of the server.

    Each pair has its own renewal thread.
    """
    alive: Any = target if isinstance(target, Orphan) else target()  # the caller has a reference to the handle
    return id(alive.store), alive.store.server_of(alive.keys)


renewal = Renewal()
on_fork(renewal.reset)
