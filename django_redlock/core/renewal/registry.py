"""What this process does with leases in the background: it extends them, releases claims, and reports losses.

Each server of a store has a `RenewalThread`. Threads renew the locks of asyncio tasks, too, so that a busy event loop
does not lose its locks.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ..contract import Orphan, Renewable, Store
from ..events import logger
from ..primitives.base import Primitive
from ..process import fork
from ..process.clock import monotonic
from ..process.mutex import state_mutex
from ..process.threads import Kind, start
from ..values import Claim
from .thread import SLACK, Entry, RenewalThread, Target

CANCEL_DELAY = 0.15  # seconds after which a claim is cancelled again, when its last request has reached the server
MAX_REPORTERS = 4  # threads that report losses: a listener may be slow, or wait for another lock


class Renewal:
    """The leases to extend and the claims to release, by token, and a renewal thread for each server."""

    def __init__(self) -> None:
        # The mutex of the handles: `__del__` of a lock, which may run anywhere, needs both. Always entered directly,
        # never through a condition: a condition is Python code, and an exception of a signal handler in that code would
        # leave the mutex locked.
        self._mutex = state_mutex
        self.reset()

    def reset(self) -> None:
        """Begin with no leases, reports and threads: after a fork, they belong to the parent."""
        self.entries: dict[bytes, Entry] = {}
        # By id(store) and server: a reference would keep the store alive.
        self._threads: dict[tuple[int, str], RenewalThread] = {}
        self._reports: deque[Callable[[], object]] = deque()
        self._reporters = 0

    def schedule(self, token: bytes, target: Target, delay: float) -> None:
        """Schedule the work on ``target`` in ``delay`` seconds: extend the lease of a hold, or release an `Orphan`.

        ``token``: the token of the lease or claim. Replaces an earlier entry with this token, but an extension never
        replaces a scheduled release. A hold that has ended is not scheduled.
        """
        due = monotonic() + delay
        alive: Any = target if isinstance(target, Orphan) else target()  # the caller has a reference to the hold
        place = id(alive.store), alive.store.server_of(alive.keys)
        with self._mutex:
            scheduled = self.entries.get(token)
            if alive is not target and (alive.end_kind or (scheduled and isinstance(scheduled[1], Orphan))):
                return
            if (thread := self._threads.get(place)) is None:
                ended = partial(self._threads.pop, place, None)
                thread = self._threads[place] = RenewalThread(self._mutex, self.entries, ended)
            thread.add(token, target, due)
        thread.ensure_started()

    def cancel(self, token: bytes) -> None:
        """Cancel the extension that is scheduled for ``token``. A scheduled release stays."""
        with self._mutex:
            entry = self.entries.get(token)
            if entry is not None and not isinstance(entry[1], Orphan):
                del self.entries[token]

    def holds(self) -> list[Renewable]:
        """Return the holds whose renewal or end is scheduled."""
        targets = [target for _, target in list(self.entries.values()) if isinstance(target, weakref.ref)]
        return [hold for target in targets if (hold := target()) is not None]

    def held_counts(self) -> Counter[tuple[str, str]]:
        """Return the number of locks that this process holds now, by alias of the store and kind of lock."""
        return Counter((hold.store.alias, hold.primitive.kind) for hold in self.holds() if hold.remaining)

    def mark_lost(self, token: bytes, reason: str) -> None:
        """Mark the lease of ``token`` as lost. For stores that notice a loss by themselves."""
        target = self.entries.get(token, (0.0, None))[1]
        hold = target() if isinstance(target, weakref.ref) else None
        if hold is not None and hold.active and hold.lease.claim.token == token:
            hold.mark_lost(reason)

    def report(self, call: Callable[[], object]) -> None:
        """Call ``call``, which reports a loss to listeners, in a background thread."""
        self._reports.append(call)
        with self._mutex:
            if self._reporters >= MAX_REPORTERS:
                return
            self._reporters += 1
        if start(Kind.REPORTS, self._report_all, postpones_forks=False) is None:
            self._report_all()

    def _report_all(self) -> None:
        while True:
            with self._mutex:
                if not self._reports:
                    self._reporters -= 1
                    return
                call = self._reports.popleft()
            try:
                with fork.postponed:
                    call()
            except BaseException:
                logger.exception("a loss could not be reported")

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


renewal = Renewal()
fork.on_fork(renewal.reset)
