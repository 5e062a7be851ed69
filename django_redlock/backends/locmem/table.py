"""The table of a `LocMemBackend`, which has holders and waiters by lock name."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ...core.flow.replies import upgrade_error
from ...core.lock_info import claim_digest, owner_of, rwlock_owner
from ...core.owner import Owner
from ...core.primitives.base import MUTEX, Primitive
from ...core.primitives.periodic import Period
from ...core.process.mutex import new_mutex
from ...core.values import Claim, Lease, Refusal
from ...errors import LockError, LockUnavailable
from .fair_queue import ABANDONED_SECONDS, FairQueues
from .task_table import TaskTable


class Holder(NamedTuple):
    """A holder of a lock, with its claim.

    ``expires``: when the lease ends, in seconds of the backend's clock. ``since``: when the lock was granted, in Unix
    time.
    """

    claim: Claim
    expires: float
    primitive: Primitive
    since: float = 0.0

    @property
    def digest(self) -> str:
        return claim_digest(self.claim)

    @property
    def owner(self) -> Owner:
        owner = owner_of(b"", self.claim.owner)
        owner = replace(owner, since=self.since) if owner.since else owner
        return rwlock_owner(owner, self.primitive.access) if self.primitive.kind == "rwlock" else owner


class LockTable:
    """The locks of one location and key prefix, with their holders and waiters, and the records of tasks."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self.held: dict[str, list[Holder]] = {}
        self.queues: defaultdict[str, deque[tuple[Claim, Callable[[], Any]]]] = defaultdict(deque)
        self.fair_queues = FairQueues()
        self.fence = 0
        self.tasks = TaskTable()

    @property
    def mutex(self) -> AbstractContextManager[bool]:
        """The mutex of this table.

        Raises ``LockUnavailable`` if this thread already holds the mutex. In this case a signal handler or ``__del__``
        has interrupted a change of the table, and must not see the half-finished change.
        """
        if self._mutex._is_owned():  # type: ignore[attr-defined]
            raise LockUnavailable(
                "", "a signal handler has interrupted a change of the store: try again after the handler"
            )
        return self._mutex

    def live_holders(self, name: str, now: float) -> list[Holder]:
        """Return the holders of the lock ``name`` at the time ``now`` (seconds of the backend's clock).

        Removes the holders whose leases have ended.
        """
        entries = [entry for entry in self.held.get(name, ()) if entry.expires > now]
        if entries:
            self.held[name] = entries
        else:
            self.held.pop(name, None)
        return entries

    def refusal(self, primitive: Primitive, claim: Claim, now: float) -> Refusal | None:
        """Return the refusal of ``claim``, which asks for a lock of the kind ``primitive``.

        Returns ``None`` if the claim can be granted. Raises ``LockError`` if the name is held as a lock of another
        kind, and if a holder of the read lock asks for the write lock. ``now``: seconds of the backend's clock.
        """
        entries = self.live_holders(claim.name, now)
        if entries and entries[0].primitive.kind != primitive.kind:
            raise LockError(claim.name, f"it is held as a {entries[0].primitive.kind}, not as a {primitive.kind}")
        others = blockers(entries, primitive, claim)
        mine = {entry.primitive.access for entry in entries if _is_mine(entry, claim)}
        if primitive.access == "w" and mine == {"r"}:
            raise upgrade_error(claim.name)
        if not others:
            if mine or self.fair_queues.is_first(primitive, claim, now):
                return None
            return Refusal(ABANDONED_SECONDS, entries[0].claim.owner.decode(errors="replace") if entries else "")
        ends = (max if primitive.limit == 1 else min)(entry.expires for entry in others)
        return Refusal(ends - now, others[0].claim.owner.decode(errors="replace"))

    def grant(self, primitive: Primitive, claim: Claim, now: float) -> Lease:
        """Grant ``claim`` and return the lease. `refusal` must have returned ``None`` for the claim.

        ``now``: seconds of the backend's clock.
        """
        kept = [entry for entry in self.live_holders(claim.name, now) if entry.claim.token != claim.token]
        stays = max(claim.ttl, claim.payload.seconds) if isinstance(claim.payload, Period) else claim.ttl
        self.held[claim.name] = [*kept, Holder(claim, now + stays, primitive, time.time())]
        self.fair_queues.leave(claim)
        self.fence = max(self.fence + 1, time.time_ns() // 1000)
        return Lease.granted(claim, now, self.fence)

    def grant_any(self, claim: Claim, parts: list[Claim], now: float) -> Lease | Refusal:
        """Grant the first claim of ``parts`` whose mutex is free, and return the lease.

        ``parts``: one claim for each stripe of ``claim``. If all mutexes are held, return the refusal for the lease
        that ends first. ``now``: seconds of the backend's clock.
        """
        refusals = []
        for which, part in enumerate(parts, 1):
            if (refusal := self.refusal(MUTEX, part, now)) is None:
                return self.grant(MUTEX, part, now)._replace(claim=claim.narrowed_to(which))
            refusals.append(refusal)
        return min(refusals)

    def grant_all(self, claim: Claim, parts: list[Claim], now: float) -> Lease | Refusal:
        """Grant all claims of ``parts``, or none if a mutex is held. Returns the lease or a refusal.

        ``parts``: one claim for each lock of ``claim``. The refusal is for the first mutex that is held. ``now``:
        seconds of the backend's clock.
        """
        for which, part in enumerate(parts, 1):
            if (refusal := self.refusal(MUTEX, part, now)) is not None:
                return refusal._replace(blocking_index=which)
        return [self.grant(MUTEX, part, now) for part in parts][-1]._replace(claim=claim)

    def adopt(self, claim: Claim, parts: list[Claim], now: float) -> Lease | Refusal:
        """Transfer all mutexes of ``parts`` from the holder that has handed them off. Returns the lease or a refusal.

        ``parts``: one claim for each lock of ``claim``. The payload of ``claim`` is the token of the previous holder.
        If this holder no longer has one of the mutexes, none is transferred. ``now``: seconds of the backend's clock.
        """
        for which, part in enumerate(parts, 1):
            entries = self.live_holders(part.name, now)
            if not any(entry.claim.token in (claim.payload, claim.token) for entry in entries):
                holder = entries[0].claim.owner.decode(errors="replace") if entries else ""
                return Refusal(entries[0].expires - now if entries else 0.0, holder, blocking_index=which)
        for part in parts:
            del self.held[part.name]
        return [self.grant(MUTEX, part._replace(payload=b""), now) for part in parts][-1]._replace(claim=claim)

    def next_wake(self, name: str, now: float) -> Callable[[], Any]:
        """Return a function that wakes the waiters that can acquire the lock ``name`` now.

        If there are no such waiters, the function does nothing. The waiters count as woken when this method returns.
        The caller must call the function after it has released the mutex. ``now``: seconds of the backend's clock.
        """
        entries = self.live_holders(name, now)
        if self.fair_queues.live_entries(name, now):
            wakes = self.fair_queues.to_wake(name, now, partial(blockers, entries))
            return lambda: [each() for each in wakes]
        queue = self.queues.get(name)
        if not queue or blockers(entries, None, queue[0][0]):
            return wake_nobody
        wake = queue.popleft()[1]
        if not queue:
            del self.queues[name]
        return wake


# By kind of lock: whether two claims have different holders.
_ANOTHER: dict[str, Callable[[Claim, Claim], bool]] = {
    "mutex": lambda holder, claim: holder.token != claim.token,
    "semaphore": lambda holder, claim: holder.token != claim.token,
    "rlock": lambda holder, claim: holder.payload != claim.payload,
    "rwlock": lambda holder, claim: holder.payload != claim.payload,  # for a waiter of another kind of lock
}


def _is_mine(entry: Holder, claim: Claim) -> bool:
    return bool(claim.payload and entry.claim.payload == claim.payload) or entry.claim.token == claim.token


def blockers(entries: list[Holder], wanted: Primitive | None, claim: Claim) -> list[Holder]:
    """Return the holders among ``entries`` that block ``claim``.

    ``wanted``: the primitive of the claim. It may be ``None`` unless the lock is a read-write lock.
    """
    if not entries:
        return entries
    primitive = entries[0].primitive
    if wanted is not None and wanted.kind == primitive.kind == "rwlock":
        others = [entry for entry in entries if entry.claim.payload != claim.payload]
        return [entry for entry in others if "w" in (entry.primitive.access, wanted.access)]
    others = [entry for entry in entries if _ANOTHER[primitive.kind](entry.claim, claim)]
    return others if len(others) >= primitive.limit else []


def wake_nobody() -> None:
    """Do nothing. Returned in place of a wake-up function if there is no waiter to wake."""


def digest_of(entries: list[Holder]) -> str:
    """Return one digest for all holders in ``entries``. Their order makes no difference."""
    return " ".join(sorted(entry.digest for entry in entries))
