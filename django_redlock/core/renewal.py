"""One thread for each process that renews what is due, says what was lost, and frees what an interrupted caller left.

It serves locks that were taken by coroutines too: an event loop that is busy for a while must not lose its locks.
"""

from __future__ import annotations

import heapq
import math
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from .drivers import drive
from .events import logger
from .lease import Claim
from .primitives import Primitive
from .requests import Fault
from .store import Store

if TYPE_CHECKING:
    from .holding import Holding

BATCH = 256  # renewals in one pipeline: about 2 ms of a server's time
SLACK = 0.05  # seconds that a renewal may come early, to travel with others
LEAVE = 0.15  # seconds after which one who was interrupted leaves the queues again: what it asked has arrived by then


class Orphan(NamedTuple):
    """A claim whose caller has gone: free it while its lease may last."""

    store: Store
    primitive: Primitive
    claim: Claim
    until: float
    waited: bool = False  # it may be listed as a waiter


class Renewal:
    """A heap of due times. What was released meanwhile is skipped when its time comes, or swept when it gets much."""

    def __init__(self) -> None:
        # Reentrant: a signal's handler may use a lock too. Entered as it is, not through the condition: that is Python,
        # and what a signal's handler raises in there would leave it locked for good.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._heap: list[tuple[float, bytes]] = []
        self._live: dict[bytes, tuple[float, weakref.ref[Holding] | Orphan]] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = math.inf

    def watch(self, token: bytes, target: weakref.ref[Holding] | Orphan, delay: float) -> None:
        """See to ``target`` in ``delay`` seconds."""
        due = time.monotonic() + delay
        with self._mutex:
            self._live[token] = due, target
            heapq.heappush(self._heap, (due, token))
            if len(self._heap) > 2 * len(self._live) + 64:
                self._heap = [(due, token) for token, (due, _) in self._live.items()]
                heapq.heapify(self._heap)
            if due < self._wakes_at:
                self._changed.notify()
        if self._thread is None:
            self._start()

    def forget(self, token: bytes) -> None:
        """Nothing more to do for ``token``."""
        self._live.pop(token, None)

    def held(self) -> Counter[tuple[str, str]]:
        """How many locks this process holds now, by alias and kind."""
        targets = [target for _, target in list(self._live.values()) if isinstance(target, weakref.ref)]
        locks = [lock for target in targets if (lock := target()) is not None and lock.remaining]
        return Counter((lock._store.alias, lock._primitive.kind) for lock in locks)

    def lose(self, token: bytes, reason: str) -> None:
        """The store has found out by itself that what ``token`` held is gone."""
        target = self._live.get(token, (0.0, None))[1]
        lock = target() if isinstance(target, weakref.ref) else None
        lease = lock._current() if lock is not None else None
        if lock is not None and lease is not None and lease.claim.token == token:
            lock._lose(lease, reason)

    def free(
        self, store: Store, primitive: Primitive, claim: Claim, *, waited: bool = False, after: float = 0.0
    ) -> None:
        """Free ``claim`` soon, from the thread, and not before ``after`` seconds are over.

        It is repeated while the store can't be asked and the lease may last.
        """
        orphan = Orphan(store, primitive, claim, store.clock() + claim.ttl, waited)
        self.watch(claim.token, orphan, after and after + SLACK)
        if waited:
            later = claim.all_attempts()
            self.watch(later.token, orphan._replace(claim=later), LEAVE)

    def _start(self) -> None:
        if sys.is_finalizing():  # a `__del__` takes a lock: up to Python 3.11 start() would wait for ever
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
            with self._mutex:
                self._wakes_at = self._heap[0][0] if self._heap else math.inf
                wait = self._wakes_at - time.monotonic()
                if wait > 0:
                    self._changed.wait(None if wait == math.inf else wait)
                self._wakes_at = -math.inf
                due = list(self._pop(time.monotonic() + SLACK))
            try:
                self._serve(due)
            except Exception:
                logger.exception("the renewal of locks failed")
            del due  # or it would keep the handles alive until the next time, and so for ever

    def _pop(self, until: float) -> Iterable[Holding | Orphan]:
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
                yield alive

    def _serve(self, due: list[Holding | Orphan]) -> None:
        locks = sorted(((_sort(each), each) for each in due if not isinstance(each, Orphan)), key=itemgetter(0))
        for _, group in groupby(locks, key=itemgetter(0)):
            self._renew([lock for _, lock in group])
        silent: set[tuple[int, str]] = set()  # servers that did not answer are waited for once in a round
        for orphan in (each for each in due if isinstance(each, Orphan)):
            server = id(orphan.store), orphan.store.server_of(orphan.claim.keys)
            if server in silent or not self._bury(orphan):
                silent.add(server)
                self._put_off(orphan)

    def _renew(self, locks: list[Holding]) -> None:
        store, primitive = locks[0]._store, locks[0]._primitive
        fault: Fault | None = None
        for first in range(0, len(locks), BATCH):
            pairs = [(lock, *terms) for lock in locks[first : first + BATCH] if (terms := lock._renewal_terms())]
            if not pairs:
                continue
            if fault is None:
                flow = store.rule.extend_many(primitive, [(lease, ttl) for _, lease, ttl in pairs])
                try:
                    outcomes = list(drive(flow, store.perform))
                except Exception as error:  # a defect, perhaps of somebody's own backend: try again as long as it lasts
                    logger.exception("the renewal of locks failed")
                    fault = Fault(error)
                    outcomes = [fault] * len(pairs)
            else:  # one batch has waited for this node in vain: don't let the others, or other nodes, wait as well
                outcomes = [fault] * len(pairs)
            for (lock, lease, _), outcome in zip(pairs, outcomes, strict=True):
                if isinstance(outcome, Fault):
                    fault = outcome
                lock._replaced(lease, outcome)

    def _bury(self, orphan: Orphan) -> bool:
        store, primitive, claim, _, waited = orphan
        try:
            drive((store.rule.withdraw if waited else store.rule.release)(primitive, claim), store.perform)
        except Exception:  # noqa: BLE001  (whatever it is: try again, and in the end the ttl frees the lock)
            return False
        self.forget(claim.token)
        return True

    def _put_off(self, orphan: Orphan) -> None:
        if orphan.store.clock() < orphan.until:
            self.watch(orphan.claim.token, orphan, 0.5)
        else:
            self.forget(orphan.claim.token)


def _sort(lock: Holding) -> tuple[int, str, str, int, str]:
    """What can be renewed in one batch, and fails together. Locks of a server that isn't known come last."""
    primitive, lease = lock._primitive, lock._current()
    server = lock._store.server_of(lease.claim.keys) if lease else ""
    return id(lock._store), server, primitive.kind, primitive.limit, primitive.mode


renewal = Renewal()


def _forked() -> None:
    renewal.__init__()  # type: ignore[misc]  # the thread and the locks that it watched are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
