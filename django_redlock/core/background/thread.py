"""`DueThread`: a background thread that performs scheduled work when it is due."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from ..events import logger
from ..process import fork, threads
from ..process.clock import monotonic
from ..process.mutex import state_mutex

Entry = tuple[float, Any]  # the due time in monotonic seconds, and the target

SLACK = 0.05  # seconds that an entry may be served early, together with others
SERVE_AGAIN_SECONDS = 0.5  # pause before an entry is served again, if `serve` fails or asks for it
IDLE_SECONDS = 10.0  # seconds without an entry, after which the thread ends
MAX_WAIT = 3600.0  # longest wait in seconds, because `threading` limits the timeout of a wait


class DueThread:
    """A background thread that works on targets, such as holds to renew, when they are due.

    ``serve``: called with the due targets by token; returns the tokens of targets to serve again soon. ``entries``: due
    time and target by token, of all threads with this work. `state_mutex` protects the entries and the heap. Outdated
    times in the heap are skipped. ``ended``: called under the mutex when the thread ends.
    """

    def __init__(
        self,
        entries: dict[bytes, Entry],
        serve: Callable[[Mapping[bytes, Any]], Collection[bytes]],
        ended: Callable[[], object],
    ) -> None:
        self._entries = entries
        self._serve = serve
        self._ended = ended
        self._earlier = threading.Condition(state_mutex)  # notified of an entry that is due before `_wakes_at`
        self._wakes_at = math.inf  # monotonic seconds; minus infinity while the thread does not wait
        self._heap: list[tuple[float, bytes]] = []
        self.started = False

    def add(self, token: bytes, target: Any, due: float) -> None:
        """Schedule ``target`` for the monotonic time ``due``. Called under the mutex."""
        self._entries[token] = due, target
        heapq.heappush(self._heap, (due, token))
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [(due, token) for due, token in self._heap if self._entries.get(token, (None,))[0] == due]
            heapq.heapify(self._heap)
        if due < self._wakes_at:
            self._earlier.notify()

    def start(self) -> None:
        """Start the thread. If this fails, `started` stays false, so that a later call tries again.

        Must not be called under the mutex: before it has started, the new thread may collect garbage, and so release a
        lock.
        """
        self.started, thread = True, None
        try:
            thread = threads.start(threads.Kind.LEASES, self._run)
        finally:
            if thread is None:  # after an interrupt it may run nevertheless: a second thread does no harm
                self.started = False

    def _run(self) -> None:
        while True:
            try:
                with state_mutex:
                    if not self._wait_for_entry():
                        self._ended()
                        return
                self._serve_due()
            except BaseException:
                with suppress(BaseException):
                    logger.exception("the renewal or release of locks failed")
                    time.sleep(SERVE_AGAIN_SECONDS)

    def _wait_for_entry(self) -> bool:
        """Wait until an entry is due. Returns ``False`` if there was no entry for too long, and the thread must end."""
        if not self._heap:
            self._wait(IDLE_SECONDS)
        if self._heap:
            self._wait(self._heap[0][0] - monotonic())
        return bool(self._heap)

    def _wait(self, seconds: float) -> None:
        """Wait at most ``seconds``, or until an entry is added that is due earlier."""
        if seconds <= 0:
            return
        self._wakes_at = monotonic() + seconds if self._heap else math.inf
        try:
            self._earlier.wait(min(seconds, MAX_WAIT))
        finally:
            self._wakes_at = -math.inf

    def _serve_due(self) -> None:
        taken: dict[bytes, Entry] = {}
        again: Collection[bytes] = taken  # unless `serve` returns
        try:
            with fork.postponed:
                until = monotonic() + SLACK
                with state_mutex:
                    while self._heap and self._heap[0][0] <= until:
                        due, token = heapq.heappop(self._heap)
                        entry = self._entries.get(token)
                        if entry is not None and entry[0] == due:
                            taken[token] = entry
                again = self._serve({token: target for token, (_, target) in taken.items()})
        finally:
            with state_mutex:
                current = {token: entry for token, entry in taken.items() if self._entries.get(token) is entry}
                for token in current:  # the others were cancelled or scheduled anew
                    del self._entries[token]
                for token in again:  # in this order
                    if token in current:
                        self.add(token, current[token][1], monotonic() + SERVE_AGAIN_SECONDS)
