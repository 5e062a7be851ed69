"""The renewal thread of one server: extends many leases in few requests, and releases claims without a caller.

Each server has its own thread, so that a server that hangs delays no renewals on other servers. The name look-up, the
connect or the code of a custom backend may hang.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from ..contract import Extension, Orphan, Renewable
from ..events import logger
from ..flow.drivers import drive
from ..flow.requests import Fault
from ..primitives.base import Primitive
from ..process import fork
from ..process.clock import monotonic
from ..process.threads import Kind, start
from ..values import Lease

Target = weakref.ref[Renewable] | Orphan
Entry = tuple[float, Target]  # the due time in monotonic seconds, and the target
Due = Mapping[bytes, Renewable | Orphan]  # handles and orphans that are due, by token

SLACK = 0.05  # seconds that an extension may be early, to share a pipeline with others
RENEWAL_RETRY_SECONDS = 0.5  # seconds after which a failed extension or release is repeated
RENEWAL_IDLE_SECONDS = 10.0  # seconds without an entry, after which the thread ends
MAX_WAIT = 3600.0  # longest wait in seconds, because `threading` limits the timeout of a wait
BATCH = 256  # extensions in one pipeline: about 2 ms of a server's time
FAILED = "the renewal of lock %r failed"


class RenewalThread:
    """A background thread with a heap of due times (monotonic seconds) and tokens.

    ``entries`` has the entries of all renewal threads, by token; ``mutex`` protects them and the heap. A token that was
    cancelled or scheduled anew stays in the heap under its old time, and is skipped then. ``ended`` is called under the
    mutex when the thread ends.
    """

    def __init__(self, mutex: Any, entries: dict[bytes, Entry], ended: Callable[[], object]) -> None:
        self._mutex = mutex
        self._entries = entries
        self._ended = ended
        self._earlier = threading.Condition(mutex)  # notified when an entry is added that is due before `_wakes_at`
        self._wakes_at = math.inf
        self._heap: list[tuple[float, bytes]] = []
        self._run_id: object = None  # identifies the thread that does the work; `None`: none

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
        """Start the thread unless it runs. If no thread can be started, the leases end with their ttl."""
        if self._run_id is not None:
            return
        run_id = object()
        started = None
        try:
            with self._mutex:
                if self._run_id is not None:
                    return
                self._run_id = run_id
            # Outside the mutex: it may switch to another greenlet, which could enter the reentrant mutex.
            started = start(Kind.RENEWAL, self._run, run_id, postpones_forks=False)
        finally:
            if started is None and self._run_id is run_id:  # also after an interrupt: a thread that runs then ends
                self._run_id = None

    def _run(self, run_id: object) -> None:
        while True:
            try:
                if not self._wait_for_work(run_id):
                    return
                self._serve_due()
            except BaseException:
                with suppress(BaseException):
                    logger.exception("the renewal of locks failed")
                    time.sleep(RENEWAL_RETRY_SECONDS)

    def _wait_for_work(self, run_id: object) -> bool:
        """Wait until an entry is due. Returns ``False`` if the thread has been idle for too long and must end."""
        with self._mutex:
            if self._run_id is not run_id:  # its start was interrupted: another thread may run
                return False
            if not self._heap and not self._wait(RENEWAL_IDLE_SECONDS) and not self._heap:
                self._run_id = None
                self._ended()
                return False
            self._wait((self._heap[0][0] if self._heap else math.inf) - monotonic())
        return True

    def _wait(self, seconds: float) -> bool:
        """Wait ``seconds`` at most. Returns early, with ``True``, when an entry is added that is due earlier."""
        if seconds <= 0:
            return False
        self._wakes_at = monotonic() + seconds if self._heap else math.inf
        try:
            return self._earlier.wait(min(seconds, MAX_WAIT))
        finally:
            self._wakes_at = -math.inf

    def _serve_due(self) -> None:
        taken: dict[bytes, Entry] = {}
        served: set[bytes] = set()
        try:
            with fork.postponed:
                serve(self._take_due(monotonic() + SLACK, taken), served)
        finally:
            with self._mutex:
                for token, entry in taken.items():
                    if self._entries.get(token) is not entry:
                        continue  # scheduled anew, or cancelled
                    if token in served:
                        del self._entries[token]
                    else:
                        self.add(token, entry[1], monotonic() + RENEWAL_RETRY_SECONDS)

    def _take_due(self, until: float, taken: dict[bytes, Entry]) -> Due:
        """Move the entries that are due by ``until`` from the heap to ``taken``. Returns their targets by token."""
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


def serve(due: Due, served: set[bytes]) -> None:
    """Serve the targets of one server. Adds to ``served`` the tokens that need no further attempt."""
    holds = {target: token for token, target in due.items() if not isinstance(target, Orphan)}
    failed = extend_all(holds)
    served.update(token for hold, token in holds.items() if hold not in failed)
    _release_all([(token, target) for token, target in due.items() if isinstance(target, Orphan)], served)


def extend_all(holds: Iterable[Renewable]) -> set[Renewable]:
    """Extend the leases of ``holds``, or mark them as lost. Returns the holds for which an exception was logged."""
    failed: set[Renewable] = set()
    groups: defaultdict[tuple[int, Primitive], list[Renewable]] = defaultdict(list)
    for hold in holds:
        groups[id(hold.store), hold.primitive].append(hold)
    for group in groups.values():
        fault: Fault | None = None  # a fault of all leases of a batch: later batches are not sent to this server
        for first in range(0, len(group), BATCH):
            begun: list[tuple[Renewable, Extension]] = []
            for hold in group[first : first + BATCH]:
                try:
                    if (extension := hold.begin_renewal()) is not None:
                        begun.append((hold, extension))
                except BaseException:
                    logger.exception(FAILED, hold.name)
                    failed.add(hold)
            outcomes = [fault] * len(begun) if fault else _extend(begun)
            if begun and all(isinstance(outcome, Fault) for outcome in outcomes):
                fault = cast("Fault", outcomes[0])  # the fault of some leases says nothing about the others
            for (hold, extension), outcome in zip(begun, outcomes, strict=True):
                try:
                    hold.on_extended(extension, outcome)
                except BaseException:
                    logger.exception(FAILED, hold.name)
                    failed.add(hold)
    return failed


def _extend(begun: list[tuple[Renewable, Extension]]) -> Sequence[Lease | Fault | None]:
    if not begun:
        return []
    store, primitive = begun[0][0].store, begun[0][0].primitive
    try:
        leases = [(each.lease, each.ttl) for _, each in begun]
        return drive(store.algorithm.extend_many(primitive, leases), store.perform)
    except BaseException as error:  # a defect, perhaps of a custom backend: the leases are extended again later
        logger.exception("the renewal of locks failed")
        return [Fault(error if isinstance(error, Exception) else RuntimeError(repr(error)))] * len(begun)


def _release_all(orphans: list[tuple[bytes, Orphan]], served: set[bytes]) -> None:
    """Release ``orphans``, many in few pipelines, because a request for each would delay the next renewals."""
    # Orphans whose lock must stay taken for a time are released one by one: `cancel_many` releases at once.
    pairs = [(token, each) for token, each in orphans if each.keep_until <= each.store.clock()]
    if len(pairs) > 1 and (cancel_many := pairs[0][1].store.algorithm.cancel_many) is not None:
        with suppress(Exception):  # each is released by itself then
            for first in range(0, len(pairs), BATCH):
                batch = pairs[first : first + BATCH]
                flow = cancel_many([(each.primitive, each.claim) for _, each in batch])
                outcomes = drive(flow, batch[0][1].store.perform)
                served.update(token for (token, _), done in zip(batch, outcomes, strict=True) if done)
                if not any(outcomes):
                    break
    answers = True  # after one release without a reply, the others are left for the next round
    for token, orphan in orphans:
        if token not in served and answers:
            try:
                drive(orphan.release_flow(), orphan.store.perform)
                served.add(token)
            except Exception:  # noqa: BLE001  (any error: the release is repeated until the ttl ends the lock)
                answers = False
        if orphan.store.clock() >= orphan.until:
            served.add(token)
