"""The renewal thread of one server: extends the leases that are due, and releases claims that no caller could release.

Each server has its own thread, so that a server that hangs delays no renewals on other servers. The name look-up, the
connect or the code of a custom backend may hang.
"""

from __future__ import annotations

import heapq
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..contract import Orphan, Renewable
from ..events import logger
from ..process import fork

Target = weakref.ref[Renewable] | Orphan
Entry = tuple[float, Target]  # the due time in monotonic seconds, and the target
Due = Mapping[bytes, Renewable | Orphan]  # handles and orphans that are due, by token

SLACK = 0.05  # seconds that an extension may be early, to share a pipeline with others
RENEWAL_RETRY_SECONDS = 0.5  # seconds after which a failed extension or release is repeated
RENEWAL_IDLE_SECONDS = 10.0  # seconds without an entry, after which the thread ends
MAX_WAIT = 3600.0  # longest wait in seconds, because `threading` limits the timeout of a wait


class RenewalThread:
    """A background thread with a heap of due times (monotonic seconds) and tokens.

    ``entries`` has the entries of all renewal threads, by token. ``mutex`` protects ``entries``, the heap and the
    thread. A token that was cancelled or scheduled anew stays in the heap under its old time, and is skipped when that
    time comes. ``serve(due, served)`` does the work, and adds to ``served`` the tokens that need no further attempt.
    ``ended`` is called under the mutex when the thread ends.
    """

    def __init__(
        self,
        mutex: Any,
        entries: dict[bytes, Entry],
        serve: Callable[[Due, set[bytes]], None],
        ended: Callable[[], object],
    ) -> None:
        self._mutex = mutex
        self._entries = entries
        self._serve = serve
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
            with fork.postponed:
                self._serve(self._take_due(time.monotonic() + SLACK, taken), served)
        finally:
            with self._mutex:
                for token, entry in taken.items():
                    if self._entries.get(token) is not entry:
                        continue  # scheduled anew, or cancelled
                    if token in served:
                        del self._entries[token]
                    else:
                        self.add(token, entry[1], time.monotonic() + RENEWAL_RETRY_SECONDS)

    def _take_due(self, until: float, taken: dict[bytes, Entry]) -> Due:
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
