"""Registry of the leases that this process extends or releases in the background, and the renewal threads.

Each server has its own `RenewalThread`, so that a server that hangs delays no renewals on other servers. The name
look-up, the connect or the code of a custom backend may hang. Threads renew the locks of asyncio tasks, too, so that a
busy event loop does not lose its locks.
"""

from __future__ import annotations

import heapq
import math
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from .. import fork_guard
from ..contract import Orphan, Renewable, Store
from ..events import logger
from ..fork import on_fork
from ..primitives.base import Primitive
from ..thread_mutex import new_mutex
from ..values import Claim
from .work import serve

Target = weakref.ref[Renewable] | Orphan
Entry = tuple[float, Target]  # the due time in monotonic seconds, and the target

SLACK = 0.05  # seconds that an extension may be early, to share a pipeline with others
RENEWAL_RETRY_SECONDS = 0.5  # seconds after which a failed extension or release is repeated
RENEWAL_IDLE_SECONDS = 10.0  # seconds without an entry, after which the thread ends
MAX_WAIT = 3600.0  # longest wait in seconds, because `threading` limits the timeout of a wait
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
                thread = self._threads[place] = RenewalThread(self._mutex, self.entries, ended)
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


class RenewalThread:
    """A background thread with a heap of due times (monotonic seconds) and tokens.

    ``entries`` has the entries of all renewal threads, by token. ``mutex`` protects ``entries``, the heap and the
    thread. A token that was cancelled or scheduled anew stays in the heap under its old time, and is skipped when that
    time comes. ``ended`` is called under the mutex when the thread ends.
    """

    def __init__(self, mutex: Any, entries: dict[bytes, Entry], ended: Callable[[], object]) -> None:
        self._mutex = mutex
        self._entries = entries
        self._ended = ended
        self._earlier = threading.Condition(mutex)  # notified when an entry is added that is due before `_wakes_at`
        self._wakes_at = math.inf
        self._heap: list[tuple[float, bytes]] = []
        self._thread: threading.Thread | None = None

    def add(self, token: bytes, target: Target, due: float) -> None:
        """Schedule ``target`` for the monotonic time ``due``. Called under the mutex."""
        self._entries[token] = due, target
        heapq.heappush(self._heap, (due, token))
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [(due, token) for due, token in self._heap if self._entries.get(token, (None,))[0] == due]
            heapq.heapify(self._heap)
        if due < self._wakes_at:
            self._earlier.notify()

    def ensure_started(self) -> None:
        """Start the thread unless it runs."""
        if self._thread is not None or sys.is_finalizing():  # up to Python 3.11, start() would hang in `__del__`
            return
        thread = threading.Thread(target=self._run, name="redlock-renewal", daemon=True)
        try:
            with self._mutex:
                if self._thread is not None:
                    return
                self._thread = thread
            # Outside the mutex: start() may switch to another greenlet, which could enter the reentrant mutex.
            thread.start()
        except BaseException as error:  # also what a signal handler raises
            if self._thread is thread and not thread.is_alive():
                self._thread = None
            if not isinstance(error, RuntimeError):  # the interpreter shuts down: the lease ends with its ttl
                raise

    def _run(self) -> None:
        while True:
            try:
                if not self._wait_for_work():
                    return
                self._serve_due()
            except BaseException:
                with suppress(BaseException):
                    logger.exception("the renewal of locks failed")
                    time.sleep(RENEWAL_RETRY_SECONDS)

    def _wait_for_work(self) -> bool:
        """Wait until an entry is due. Returns ``False`` if the thread has been idle for too long and must end."""
        with self._mutex:
            if self._thread is not threading.current_thread():  # its start was interrupted: another thread may run
                return False
            if not self._heap and not self._wait(RENEWAL_IDLE_SECONDS) and not self._heap:
                self._thread = None
                self._ended()
                return False
            self._wait((self._heap[0][0] if self._heap else math.inf) - time.monotonic())
        return True

    def _wait(self, seconds: float) -> bool:
        """Wait ``seconds`` at most. Returns early, with ``True``, when an entry is added that is due earlier."""
        if seconds <= 0:
            return False
        self._wakes_at = time.monotonic() + seconds if self._heap else math.inf
        try:
            return self._earlier.wait(min(seconds, MAX_WAIT))
        finally:
            self._wakes_at = -math.inf

    def _serve_due(self) -> None:
        taken: dict[bytes, Entry] = {}
        served: set[bytes] = set()
        try:
            with fork_guard.postponed:
                serve(self._take_due(time.monotonic() + SLACK, taken), served)
        finally:
            with self._mutex:
                for token, entry in taken.items():
                    if self._entries.get(token) is not entry:
                        continue  # scheduled anew, or cancelled
                    if token in served:
                        del self._entries[token]
                    else:
                        self.add(token, entry[1], time.monotonic() + RENEWAL_RETRY_SECONDS)

    def _take_due(self, until: float, taken: dict[bytes, Entry]) -> dict[bytes, Renewable | Orphan]:
        """Remove the entries that are due by ``until`` (monotonic seconds) from the heap, and add them to ``taken``.

        Returns the handles and orphans of these entries by token. An entry whose handle was garbage-collected is
        dropped.
        """
        due: dict[bytes, Renewable | Orphan] = {}
        with self._mutex:
            while self._heap and self._heap[0][0] <= until:
                when, token = heapq.heappop(self._heap)
                entry = self._entries.get(token)
                if entry is None or entry[0] != when:
                    continue
                target = entry[1] if isinstance(entry[1], Orphan) else entry[1]()
                if target is None:
                    del self._entries[token]  # the handle was garbage-collected: its lease ends by itself
                else:
                    taken[token], due[token] = entry, target
        return due


renewal = Renewal()
on_fork(renewal.__init__)  # type: ignore[misc]  # the leases belong to the parent, and the child has no threads
