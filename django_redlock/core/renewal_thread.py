"""The thread that serves one server: it renews what is due, says what was lost, and frees what a caller left behind.

Each server of a Cluster and each other store has its own. So one that doesn't answer delays no other's renewals,
wherever it holds us up: in the look-up of a host's name, in connecting, or in somebody else's code.
"""

from __future__ import annotations

import heapq
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from . import fork
from .contract import Renewable, Store
from .events import logger
from .flow.drivers import drive
from .flow.requests import Fault
from .primitives.base import Primitive
from .values import Claim, Lease
from .waiting.extensions import Extension

BATCH = 256  # renewals in one pipeline: about 2 ms of a server's time
SLACK = 0.05  # seconds that a renewal may come early, to travel with others
RETRY_SECONDS = 0.5  # seconds after which what has failed is tried again
IDLE_SECONDS = 10.0  # seconds without anything to watch, after which the thread ends
MAX_WAIT = 3600.0  # seconds of one wait: Python takes no number at will


class Orphan(NamedTuple):
    """A claim whose caller has gone: free it while its lease may last."""

    store: Store
    primitive: Primitive
    claim: Claim
    until: float
    waited: bool = False  # it may be listed as a waiter


Target = weakref.ref["Renewable"] | Orphan
Entry = tuple[float, Target]  # when it is due, by the monotonic clock


class RenewalThread:
    """A heap of due times, and the thread. What was released meanwhile is skipped, or swept when it gets much.

    ``mutex`` guards all of it, and ``live``, the entries of all stores by token. ``ended`` is called with it.
    """

    def __init__(self, mutex: Any, live: dict[bytes, Entry], ended: Callable[[], object]) -> None:
        self._mutex = mutex
        self._live = live
        self._ended = ended
        self._changed = threading.Condition(mutex)
        self._heap: list[tuple[float, bytes]] = []
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf

    def add(self, token: bytes, target: Target, due: float) -> None:
        """See to ``target`` when it is due. The caller has the mutex."""
        self._live[token] = due, target
        heapq.heappush(self._heap, (due, token))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [(due, token) for due, token in self._heap if self._live.get(token, (None,))[0] == due]
            heapq.heapify(self._heap)
        if due < self._wakes_at:
            self._changed.notify()

    def ensure_started(self) -> None:
        """Start the thread unless it runs."""
        if self._thread is not None or sys.is_finalizing():  # in `__del__`, up to Python 3.11, start() waits for ever
            return
        with self._mutex:
            if self._thread is not None:
                return
            thread = self._thread = threading.Thread(target=self._run, name="redlock-renewal", daemon=True)
        try:
            # Outside the mutex: if gevent came later than us, that does not keep greenlets apart, and start() switches.
            thread.start()
        except RuntimeError:  # the interpreter is shutting down: the lease is good for its ttl, and then it ends
            self._thread = None

    def _run(self) -> None:
        while True:
            try:
                if not self._round():
                    return
            except BaseException:
                with suppress(BaseException):
                    logger.exception("the renewal of locks failed")
                    time.sleep(RETRY_SECONDS)

    def _round(self) -> bool:
        """Wait until something is due, and see to it; ``False`` when nothing has been watched for a while."""
        with self._mutex:
            if not self._heap and not self._wait(IDLE_SECONDS) and not self._heap:
                self._thread = None
                self._ended()
                return False
            self._wait((self._heap[0][0] if self._heap else math.inf) - time.monotonic())
        due: dict[bytes, tuple[Entry, Renewable | Orphan]] = {}
        unserved: set[bytes] = set()
        try:
            with fork.postponed:
                self._take(time.monotonic() + SLACK, due)
                unserved.update(due)
                self._serve(due, unserved)
        finally:
            with self._mutex:
                for token, (entry, _) in due.items():
                    if self._live.get(token) is not entry:
                        continue  # watched anew, or released
                    if token in unserved:
                        self.add(token, entry[1], time.monotonic() + RETRY_SECONDS)
                    else:
                        del self._live[token]
        return True

    def _wait(self, seconds: float) -> bool:
        """Wait for what is due earlier; whether there is."""
        if seconds <= 0:
            return False
        self._wakes_at = time.monotonic() + seconds if self._heap else math.inf
        try:
            return self._changed.wait(min(seconds, MAX_WAIT))
        finally:
            self._wakes_at = -math.inf

    def _take(self, until: float, due: dict[bytes, tuple[Entry, Renewable | Orphan]]) -> None:
        with self._mutex:
            while self._heap and self._heap[0][0] <= until:
                when, token = heapq.heappop(self._heap)
                entry = self._live.get(token)
                if entry is None or entry[0] != when:
                    continue
                target = entry[1]
                alive = target if isinstance(target, Orphan) else target()
                if alive is None:
                    del self._live[token]  # the handle was garbage-collected: nobody can release it, let it end
                else:
                    due[token] = entry, alive

    def _serve(self, due: dict[bytes, tuple[Entry, Renewable | Orphan]], unserved: set[bytes]) -> None:
        locks = {alive: token for token, (_, alive) in due.items() if not isinstance(alive, Orphan)}
        failed = extend_all(locks)
        unserved.difference_update(token for lock, token in locks.items() if lock not in failed)
        silent: set[str] = set()  # servers that did not answer are waited for once in a round, not for each orphan
        for token, (_, orphan) in due.items():
            if isinstance(orphan, Orphan):
                server = orphan.store.server_of(orphan.claim.keys)
                freed = server not in silent and _release_orphan(orphan)
                if not freed:
                    silent.add(server)
                if freed or orphan.store.clock() >= orphan.until:
                    unserved.discard(token)


def extend_all(locks: Iterable[Renewable]) -> set[Renewable]:
    """Renew all of them, or say that they are lost. Returns those that have to be tried again."""
    failed: set[Renewable] = set()
    pairs = sorted(((_group_key(lock), lock) for lock in locks), key=itemgetter(0))
    for _, group in groupby(pairs, key=itemgetter(0)):
        failed |= _extend_group([lock for _, lock in group])
    return failed


def _extend_group(locks: list[Renewable]) -> set[Renewable]:
    store, primitive = locks[0].store, locks[0].primitive
    failed: set[Renewable] = set()
    fault: Fault | None = None
    for first in range(0, len(locks), BATCH):
        begun: list[tuple[Renewable, Extension]] = []
        for lock in locks[first : first + BATCH]:
            with _logged(failed, lock):
                if (extension := lock.begin_renewal()) is not None:
                    begun.append((lock, extension))
        if not begun:
            continue
        outcomes: Sequence[Lease | Fault | None] = [fault] * len(begun)
        if fault is None:  # else one batch has waited for this node in vain: don't let the others wait as well
            flow = store.algorithm.extend_many(primitive, [(each.lease, each.ttl) for _, each in begun])
            try:
                outcomes = drive(flow, store.perform)
            except BaseException as error:  # a defect, perhaps of somebody's own backend: try again as long as it lasts
                logger.exception("the renewal of locks failed")
                fault = Fault(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                outcomes = [fault] * len(begun)
        for (lock, extension), outcome in zip(begun, outcomes, strict=True):
            if isinstance(outcome, Fault):
                fault = outcome
            with _logged(failed, lock):
                lock.on_extended(extension, outcome)
    return failed


@contextmanager
def _logged(failed: set[Renewable], lock: Renewable) -> Iterator[None]:
    """What goes wrong with one lock concerns no other."""
    try:
        yield
    except BaseException:
        failed.add(lock)
        logger.exception("the renewal of lock %r failed", lock.name)


def _group_key(lock: Renewable) -> tuple[int, str, str, int, str]:
    """What can be renewed in one batch, and fails together. Locks of a server that isn't known come last."""
    primitive, lease = lock.primitive, lock.current_lease()
    server = lock.store.server_of(lease.claim.keys) if lease else ""
    return id(lock.store), server, primitive.kind, primitive.limit, primitive.access


def _release_orphan(orphan: Orphan) -> bool:
    store, primitive, claim, _, waited = orphan
    try:
        drive((store.algorithm.cancel if waited else store.algorithm.release)(primitive, claim), store.perform)
    except Exception:  # noqa: BLE001  (whatever it is: try again, and in the end the ttl frees the lock)
        return False
    return True
