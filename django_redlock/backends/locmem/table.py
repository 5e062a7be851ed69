"""The table of a `LocMemBackend`, which has holders and waiters by lock name. Times are seconds of its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...core.flow.replies import upgrade_error
from ...core.lock_info import claim_digest, owner_of, rwlock_owner
from ...core.owner import Owner
from ...core.primitives.base import MAX_BLOCK_IN_QUEUE, MUTEX, Primitive
from ...core.primitives.multi import ADOPT, SeveralMutexes
from ...core.primitives.periodic import Period
from ...core.process.mutex import new_mutex
from ...core.values import Claim, Lease, Refusal
from ...errors import LockError, LockUnavailable
from .task_table import TaskTable


class Holder(NamedTuple):
    """A holder of a lock, with its claim. ``expires``: when the lease ends. ``since``: Unix time of the grant."""

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


@dataclass(eq=False)
class QueueEntry:
    """A waiter for one lock, from its first refusal to the end of its acquire. ``wake``: wakes the waiter."""

    claim: Claim
    primitive: Primitive
    wake: Callable[[], Any] | None = None


class LockTable:
    """The locks of one location and key prefix, with their holders and waiters, and the records of tasks."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self.held: dict[str, list[Holder]] = {}
        self.waiters: dict[str, list[QueueEntry]] = {}  # in order of arrival
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
        """Return the holders of the lock ``name`` at the time ``now``. Removes those whose leases have ended."""
        entries = [entry for entry in self.held.get(name, ()) if entry.expires > now]
        if entries:
            self.held[name] = entries
        else:
            self.held.pop(name, None)
        return entries

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def acquire(self, primitive: Primitive, claim: Claim, parts: list[Claim], now: float) -> Lease | Refusal:
        """Grant ``claim`` if it can be granted at the time ``now``. Returns the lease or a refusal.

        ``parts``: one claim for each lock of ``claim``. Raises ``LockError`` as `refusal` does.
        """
        refusals = [self.refusal(primitive, part, now) for part in parts]
        free = [index for index, refusal in enumerate(refusals) if refusal is None]
        refused = [each._replace(blocking_index=index) for index, each in enumerate(refusals, 1) if each is not None]
        if refused and (claim.require_all or not free):
            return refused[0] if claim.require_all else min(refused)
        if isinstance(primitive, SeveralMutexes):
            granted = parts if claim.require_all else [parts[free[0]]]
            whole = claim if claim.require_all else claim.narrowed_to(free[0] + 1)
            return [self._grant(primitive, part, now) for part in granted][-1]._replace(claim=whole)
        return self._grant(primitive, claim, now)

    def refusal(self, primitive: Primitive, claim: Claim, now: float) -> Refusal | None:
        """Return the refusal of ``claim``, which asks for one lock; ``None`` if the claim can be granted.

        Raises ``LockError`` if the name is held as a lock of another kind, and if a reader acquires the write lock.
        """
        entries = self.live_holders(claim.name, now)
        if primitive is ADOPT:
            if any(entry.claim.token in (claim.payload, claim.token) for entry in entries):
                return None
            return _refused_by(entries[0], entries[0].expires - now) if entries else Refusal(0.0)
        kind = _one(primitive).kind
        if entries and entries[0].primitive.kind != kind:
            raise LockError(claim.name, f"it is held as a {entries[0].primitive.kind}, not as a {kind}")
        others = blockers(entries, primitive, claim)
        mine = {entry.primitive.access for entry in entries if _is_mine(entry, claim)}
        if primitive.access == "w" and mine == {"r"}:
            raise upgrade_error(claim.name)
        if others:
            ends = (max if primitive.limit == 1 else min)(entry.expires for entry in others)
            return _refused_by(others[0], ends - now)
        if mine or self.is_first(primitive, claim):
            return None
        return _refused_by(entries[0], MAX_BLOCK_IN_QUEUE) if entries else Refusal(MAX_BLOCK_IN_QUEUE)

    def _grant(self, primitive: Primitive, claim: Claim, now: float) -> Lease:
        before = (claim.token, claim.payload) if primitive is ADOPT else (claim.token,)
        claim = claim._replace(payload=b"") if primitive is ADOPT else claim
        kept = [entry for entry in self.live_holders(claim.name, now) if entry.claim.token not in before]
        stays = max(claim.ttl, claim.payload.seconds) if isinstance(claim.payload, Period) else claim.ttl
        self.held[claim.name] = [*kept, Holder(claim, now + stays, _one(primitive), time.time())]
        self.fence = max(self.fence + 1, time.time_ns() // 1000)
        return Lease.granted(claim, now, self.fence)

    # ── waiters ──────────────────────────────────────────────────────────────────────────────

    def waiter(self, claim: Claim) -> QueueEntry | None:
        """Return the entry of ``claim``, which asks for one lock; ``None`` if it does not wait."""
        return next((each for each in self.waiters.get(claim.name, ()) if each.claim.token == claim.token), None)

    def is_first(self, primitive: Primitive, claim: Claim) -> bool:
        """Return whether no waiter of the fair queue blocks ``claim``. Readers do not block a reader."""
        for each in self.waiters.get(claim.name, ()):
            if each.claim.token == claim.token:
                break
            if each.primitive.access and "w" in (each.primitive.access, primitive.access):
                return False
        return True

    def add_waiter(self, waiter: QueueEntry) -> None:
        """Add ``waiter`` behind all others for its lock."""
        self.waiters.setdefault(waiter.claim.name, []).append(waiter)

    def remove_waiter(self, waiter: QueueEntry) -> None:
        """Remove ``waiter``."""
        name = waiter.claim.name
        self.waiters[name].remove(waiter)
        if not self.waiters[name]:
            del self.waiters[name]

    def wakes(self, *names: str) -> list[Callable[[], Any]]:
        """Return the functions that wake all waiters for the locks ``names``. Each waiter tries again.

        The caller must call them after it has released the mutex.
        """
        return [each.wake for name in names for each in self.waiters.get(name, ()) if each.wake]


def _one(primitive: Primitive) -> Primitive:
    return MUTEX if isinstance(primitive, SeveralMutexes) else primitive


def _refused_by(entry: Holder, remaining: float) -> Refusal:
    return Refusal(remaining, entry.claim.owner.decode(errors="replace"))


def _is_mine(entry: Holder, claim: Claim) -> bool:
    return bool(claim.payload and entry.claim.payload == claim.payload) or entry.claim.token == claim.token


def blockers(entries: list[Holder], wanted: Primitive, claim: Claim) -> list[Holder]:
    """Return the holders among ``entries`` that block ``claim``. ``wanted``: the primitive of the claim."""
    if not entries:
        return entries
    primitive = entries[0].primitive
    if primitive.kind in ("rlock", "rwlock"):
        others = [entry for entry in entries if entry.claim.payload != claim.payload]
    else:
        others = [entry for entry in entries if entry.claim.token != claim.token]
    if wanted.kind == primitive.kind == "rwlock":
        return [entry for entry in others if "w" in (entry.primitive.access, wanted.access)]
    return others if len(others) >= primitive.limit else []


def digest_of(entries: list[Holder]) -> str:
    """Return one digest for all holders in ``entries``. Their order makes no difference."""
    return " ".join(sorted(entry.digest for entry in entries))
