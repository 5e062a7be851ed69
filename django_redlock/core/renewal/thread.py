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
from typing import Any

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


def serve(due: Due, served: set[bytes]) -> None:
    """Extend the lease of each handle in ``due``, and release each orphan, all of one server.

    Adds to ``served`` the tokens that need no further attempt.
    """
    handles = {target: token for token, target in due.items() if not isinstance(target, Orphan)}
    failed = extend_all(handles)
    served.update(token for handle, token in handles.items() if handle not in failed)
    orphans = {token: target for token, target in due.items() if isinstance(target, Orphan)}
    released = release_many(orphans)
    silent = False  # after one release without a reply, the other releases are left for the next round
    for token, orphan in orphans.items():
        done = token in released or (not silent and _release(orphan))
        silent = silent or not done
        if done or orphan.store.clock() >= orphan.until:
            served.add(token)


def release_many(orphans: Mapping[bytes, Orphan]) -> set[bytes]:
    """Release many orphans in few pipelines, because one pair of requests for each would delay the next renewals.

    Returns the tokens of the orphans that their store has served. The caller releases the other orphans one by one.
    """
    released: set[bytes] = set()
    # Orphans whose lock must stay taken for a time are released one by one: `cancel_many` releases at once.
    pairs = [(token, each) for token, each in orphans.items() if each.keep_until <= each.store.clock()]
    store = pairs[0][1].store if len(pairs) > 1 else None  # a renewal thread has one store
    cancel_many = store.algorithm.cancel_many if store else None
    if store is None or cancel_many is None:
        return released
    for first in range(0, len(pairs), BATCH):
        batch = pairs[first : first + BATCH]
        try:
            outcomes = drive(cancel_many([(each.primitive, each.claim) for _, each in batch]), store.perform)
        except Exception:  # noqa: BLE001  (any error: each is released by itself, or later)
            break
        released.update(token for (token, _), done in zip(batch, outcomes, strict=True) if done)
        if not any(outcomes):
            break
    return released


def _release(orphan: Orphan) -> bool:
    """Release one orphan. Returns whether its store has served the request."""
    try:
        drive(orphan.release_flow(), orphan.store.perform)
    except Exception:  # noqa: BLE001  (any error: the release is repeated until the ttl ends the lock)
        return False
    return True


def extend_all(locks: Iterable[Renewable]) -> set[Renewable]:
    """Extend the leases of ``locks``, or mark them as lost. Returns the locks for which an exception was raised."""
    failed: set[Renewable] = set()
    groups: defaultdict[tuple[int, str, Primitive], list[Renewable]] = defaultdict(list)
    for lock in locks:
        store = lock.store
        groups[id(store), store.server_of(lock.keys), lock.primitive].append(lock)
    for _, group in sorted(groups.items(), key=lambda item: item[0][:2]):
        failed |= _extend_group(group)
    return failed


def _extend_group(locks: list[Renewable]) -> set[Renewable]:
    failed: set[Renewable] = set()
    fault: Fault | None = None  # a fault of all leases of a batch: later batches are not sent to this server
    for first in range(0, len(locks), BATCH):
        begun: list[tuple[Renewable, Extension]] = []
        for lock in locks[first : first + BATCH]:
            try:
                extension = lock.begin_renewal()
            except BaseException as error:  # noqa: BLE001  (the renewal of the other locks goes on)
                _on_error(failed, lock, error)
            else:
                if extension is not None:
                    begun.append((lock, extension))
        outcomes = _extend(begun, fault)
        faults = [outcome for outcome in outcomes if isinstance(outcome, Fault)]
        if faults and len(faults) == len(outcomes):  # the fault of some locks says nothing about the other locks
            fault = faults[0]
        for (lock, extension), outcome in zip(begun, outcomes, strict=True):
            try:
                lock.on_extended(extension, outcome)
            except BaseException as error:  # noqa: BLE001  (the renewal of the other locks goes on)
                _on_error(failed, lock, error)
    return failed


def _extend(begun: list[tuple[Renewable, Extension]], fault: Fault | None) -> Sequence[Lease | Fault | None]:
    """Extend the leases in ``begun`` in one pipeline, and return an outcome for each, as `Algorithm.extend_many` does.

    If an earlier batch has ended with ``fault``, nothing is sent, and every outcome is this fault.
    """
    if not begun or fault is not None:
        return [fault] * len(begun)
    lock = begun[0][0]
    flow = lock.store.algorithm.extend_many(lock.primitive, [(each.lease, each.ttl) for _, each in begun])
    try:
        return drive(flow, lock.store.perform)
    except BaseException as error:  # a defect, perhaps of a custom backend: the leases are extended again later
        logger.exception("the renewal of locks failed")
        return [Fault(error if isinstance(error, Exception) else RuntimeError(repr(error)))] * len(begun)


def _on_error(failed: set[Renewable], lock: Renewable, error: BaseException) -> None:
    """Log the error of ``lock``, and add ``lock`` to ``failed``: an error must not stop the renewal of other locks."""
    failed.add(lock)
    logger.error("the renewal of lock %r failed", lock.name, exc_info=error)
