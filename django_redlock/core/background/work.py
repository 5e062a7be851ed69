"""The background work of this process on leases: extends leases, releases claims, and reports losses.

For each server of a store one thread extends leases, and another releases claims. So a server that hangs delays no
renewals on other servers, and a release that hangs (name look-up, connect, code of a custom backend) delays no renewal.
Threads renew the locks of asyncio tasks, too, so that a busy event loop does not lose its locks.
"""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from ...errors import LockUnavailable
from ..events import logger
from ..flow.drivers import drive
from ..flow.requests import Fault, Flow
from ..primitives.base import Primitive
from ..process import fork
from ..process.clock import monotonic
from ..process.mutex import state_mutex
from ..process.threads import Kind, start
from ..values import Claim, Lease
from .thread import SLACK, DueThread, Entry

BATCH = 256  # extensions in one pipeline: about 2 ms of a server's time
CANCEL_DELAY = 0.15  # seconds after which a claim is cancelled again, when its last request has reached the server
MAX_REPORTERS = 4  # threads that report losses: a listener may be slow, or wait for another lock


class Extension(NamedTuple):
    """A pending extension of ``lease`` to ``ttl`` seconds."""

    lease: Lease
    ttl: float


class Orphan(NamedTuple):
    """A claim whose caller could not release it, for example after an interruption.

    The release is retried until the time ``until`` (monotonic seconds by the store's clock).
    """

    store: Any
    primitive: Primitive
    claim: Claim
    until: float
    cancel: bool = False  # the store may list the claim as a waiter, so it is cancelled, not only released
    keep_until: float = 0.0  # the lock stays taken until this time (the store's clock)

    def release_flow(self) -> Flow[bool]:
        """Release or cancel the claim. Returns whether it held the lock. Raises ``LockUnavailable``."""
        algorithm = self.store.algorithm
        if self.cancel:
            released: Flow[bool] = algorithm.cancel(self.primitive, self.claim)
        else:
            released = algorithm.release(self.primitive, self.claim, max(0.0, self.keep_until - self.store.clock()))
        return released


class Background:
    """The leases to extend and the claims to release, by token, and the background threads for this work.

    In the methods, ``hold`` is a `Hold`, and ``store`` is the `Store` of a hold.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Clear leases, reports and threads. Called in the child of a fork, because they belong to the parent."""
        self.renewals: dict[bytes, Entry] = {}  # weak references to holds
        self.orphans: dict[bytes, Entry] = {}
        # By id(store), server and work: a reference would keep the store alive.
        self._threads: dict[tuple[int, str, object], DueThread] = {}
        self._reports: deque[Callable[[], object]] = deque()
        self._reporters = 0

    def schedule(self, hold: Any, delay: float) -> None:
        """Schedule the renewal in ``delay`` seconds, unless ``hold`` has ended. Replaces an earlier schedule."""
        due, store, claim = monotonic() + delay, hold.store, hold.lease.claim
        place = id(store), store.server_of(claim.keys), _extend_due
        with state_mutex:
            if hold.end_kind is not None:
                return
            thread = self._threads.get(place) or self._new_thread(place, self.renewals, _extend_due)
            thread.add(claim.token, weakref.ref(hold), due)
        if not thread.started:
            thread.start()

    def schedule_release(self, token: bytes, orphan: Orphan, delay: float) -> None:
        """Schedule the release of ``orphan`` in ``delay`` seconds. Replaces an earlier orphan with this ``token``."""
        due, store = monotonic() + delay, orphan.store
        place = id(store), store.server_of(orphan.claim.keys), _release_due
        with state_mutex:
            thread = self._threads.get(place) or self._new_thread(place, self.orphans, _release_due)
            thread.add(token, orphan, due)
        if not thread.started:
            thread.start()

    def _new_thread(self, place: tuple[int, str, object], entries: dict[bytes, Entry], serve: Any) -> DueThread:
        thread = self._threads[place] = DueThread(entries, serve, partial(self._threads.pop, place, None))
        return thread

    def cancel(self, token: bytes) -> None:
        """Cancel the renewal that is scheduled for ``token``."""
        self.renewals.pop(token, None)

    def holds(self) -> list[Any]:
        """Return the holds whose renewal or end is scheduled."""
        return [hold for _, target in list(self.renewals.values()) if (hold := target()) is not None]

    def held_counts(self) -> Counter[tuple[str, str]]:
        """Return the number of locks that this process holds now, by alias of the store and kind of lock."""
        return Counter((hold.store.alias, hold.primitive.kind) for hold in self.holds() if hold.remaining)

    def mark_lost(self, token: bytes, reason: str) -> None:
        """Mark the lease of ``token`` as lost. Called by stores that detect losses themselves."""
        entry = self.renewals.get(token)
        if entry is not None and (hold := entry[1]()) is not None:
            hold.mark_lost(reason)

    def report(self, call: Callable[[], object]) -> None:
        """Call ``call``, which reports a loss, in a background thread."""
        self._reports.append(call)
        with state_mutex:
            if self._reporters >= MAX_REPORTERS:
                return
            self._reporters += 1
        if start(Kind.REPORTS, self._report_all) is None:
            self._report_all()

    def _report_all(self) -> None:
        while True:
            with state_mutex:
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
        store: Any,
        primitive: Primitive,
        claim: Claim,
        *,
        cancel: bool = False,
        after: float = 0.0,
        keep_until: float = 0.0,
    ) -> None:
        """Release ``claim`` in the background, ``after`` seconds from now at the earliest.

        The release is retried until it succeeds, or until every lease of the claim must have ended.

        - ``keep_until``: the lock stays unavailable until this time (monotonic seconds by the store's clock), as after
          a release within ``min_hold``.
        - ``cancel``: cancel the claim (`Algorithm.cancel`), which also removes it from the waiters. Needed if the
          claim may be a waiter in the store, or if a request in flight may grant it.
        """
        # Not the claim's ttl: the lease may have been extended to a longer ttl.
        orphan = Orphan(store, primitive, claim, store.clock() + store.max_ttl, cancel, keep_until)
        # The thread may serve an entry earlier, by `SLACK`.
        self.schedule_release(claim.token, orphan, after and after + SLACK)
        if cancel:
            later = claim.all_attempts()
            self.schedule_release(later.token, orphan._replace(claim=later), CANCEL_DELAY)


background = Background()
fork.on_fork(background.reset)


# ── the work of the threads ──────────────────────────────────────────────────────────────────────


def _extend_due(targets: Mapping[bytes, weakref.ref[Any]]) -> tuple[()]:
    # A hold whose handle was garbage-collected is missing: its lease ends by itself.
    extend_all([hold for target in targets.values() if (hold := target()) is not None])
    return ()


def extend_all(holds: Iterable[Any]) -> None:
    """Extend the leases of ``holds`` in few requests, or mark them as lost."""
    groups: defaultdict[tuple[int, Primitive], list[Any]] = defaultdict(list)
    for hold in holds:
        groups[id(hold.store), hold.primitive].append(hold)
    for group in groups.values():
        fault: Fault | None = None  # a fault of all leases of a batch: later batches are not sent to this server
        for first in range(0, len(group), BATCH):
            batch = group[first : first + BATCH]
            begun = [(hold, extension) for hold in batch if (extension := hold.begin_renewal()) is not None]
            outcomes = [fault] * len(begun) if fault else _extend(begun)
            if begun and all(isinstance(outcome, Fault) for outcome in outcomes):
                fault = cast("Fault", outcomes[0])  # the fault of some leases says nothing about the others
            for (hold, extension), outcome in zip(begun, outcomes, strict=True):
                hold.on_extended(extension, outcome)


def _extend(begun: list[tuple[Any, Extension]]) -> Sequence[Lease | Fault | None]:
    if not begun:
        return []
    store, primitive = begun[0][0].store, begun[0][0].primitive
    try:
        return drive(store.algorithm.extend_many(primitive, [extension for _, extension in begun]), store.perform)
    except BaseException as error:  # a defect, perhaps of a custom backend: the leases are extended again later
        logger.exception("the renewal of locks failed")
        return [Fault(error if isinstance(error, Exception) else RuntimeError(repr(error)))] * len(begun)


def _release_due(orphans: Mapping[bytes, Orphan]) -> list[bytes]:
    failed: list[bytes] = []
    left = dict(orphans)
    for token, orphan in orphans.items():
        del left[token]
        try:
            drive(orphan.release_flow(), orphan.store.perform)
        except Exception as error:  # noqa: BLE001  (any error: the release is repeated until the ttl ends the lock)
            failed.append(token)
            if isinstance(error, LockUnavailable):  # the others are left for the next round, and come first there
                break
    return [token for token in (*left, *failed) if orphans[token].store.clock() < orphans[token].until]
