"""The table of a `LocMemBackend`: holders and waiters by lock name. Times are seconds of the backend's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import sha1
from typing import Any, NamedTuple

from ...core.flow.replies import upgrade_error
from ...core.primitives.base import MAX_BLOCK_IN_QUEUE, MUTEX, Primitive
from ...core.primitives.multi import ADOPT, SeveralMutexes
from ...core.process.mutex import new_mutex
from ...core.values import Claim, Lease, Refusal
from ...errors import LockError, LockUnavailable
from .task_table import TaskTable


class Holder(NamedTuple):
    """A holder of a lock: its claim, and the time ``expires`` at which its lease ends."""

    claim: Claim
    expires: float
    primitive: Primitive


class QueueEntry(NamedTuple):
    """A waiter for one lock, from its first refusal to its last attempt. ``wake``: called when it may try again."""

    claim: Claim
    primitive: Primitive
    wake: Callable[[], Any]


class LockTable:
    """The locks of one location by Redis key, with their holders and waiters, and the records of tasks.

    Callers must hold `mutex`.
    """

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self.held: dict[bytes, list[Holder]] = {}
        self.waiters: dict[bytes, dict[bytes, QueueEntry]] = {}  # by key and token, in order of arrival
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

    def live_holders(self, key: bytes, now: float) -> list[Holder]:
        """Remove expired holders, and return the holders of the lock at the time ``now``."""
        entries = [entry for entry in self.held.get(key, ()) if entry.expires > now]
        if entries:
            self.held[key] = entries
        else:
            self.held.pop(key, None)
        return entries

    def extend(self, claim: Claim, now: float, expires: float) -> bool:
        """Extend the lease of ``claim``, but never shorten a period (``every=``). Returns the result of `change`."""
        periods = [each.expires for each in self.live_holders(claim.keys.lock, now) if each.primitive.period]
        return self.change(claim, now, max([expires, *periods]))

    def change(self, claim: Claim, now: float, expires: float, **change: Any) -> bool:
        """Change the end of the lease and other fields of ``claim``. Returns whether the claim holds all its locks."""
        found = 0
        for keys in claim.all_keys:
            entries = self.live_holders(keys.lock, now)
            for index, entry in enumerate(entries):
                if entry.claim.token == claim.token:
                    entries[index] = entry._replace(expires=expires, claim=entry.claim._replace(**change))
                    found += 1
        return found == len(claim.all_keys)

    # ── acquire ──────────────────────────────────────────────────────────────────────────────

    def acquire(
        self, primitive: Primitive, claim: Claim, now: float, wake: Callable[[], Any] | None
    ) -> Lease | Refusal:
        """Grant ``claim`` if it can be granted at the time ``now``. Returns the lease or a refusal.

        ``wake``: called when a refused claim may try again; ``None``: the claim no longer waits. Raises ``LockError``
        if a name is held as a lock of another kind, and if a reader acquires the write lock.
        """
        all_keys = [keys.lock for keys in claim.all_keys]
        refusals = [self._refusal(primitive, claim, key, now) for key in all_keys]
        free = [index for index, refusal in enumerate(refusals, 1) if refusal is None]
        refused = [each._replace(blocking_index=index) for index, each in enumerate(refusals, 1) if each is not None]
        if refused and (claim.require_all or not free):
            if wake is None:
                self.leave(claim)
            else:
                for key in all_keys:
                    self.waiters.setdefault(key, {})[claim.token] = QueueEntry(claim, primitive, wake)
            return refused[0] if claim.require_all else min(refused)
        self.leave(claim)
        granted = (claim if claim.require_all else claim.narrowed_to(free[0]))._replace(owner=claim.owner_since(now))
        for keys in granted.all_keys:
            self._hold(primitive, granted, keys.lock, now)
        self.fence = max(self.fence + 1, time.time_ns() // 1000)
        return Lease.granted(granted, now, self.fence)

    def _refusal(self, primitive: Primitive, claim: Claim, key: bytes, now: float) -> Refusal | None:
        """Return the refusal if ``claim`` can't get the lock ``key``; ``None`` if it can."""
        entries = self.live_holders(key, now)
        if primitive is ADOPT:
            if any(entry.claim.token in (claim.previous, claim.token) for entry in entries):
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
        if mine or self._is_first(primitive, claim, key):
            return None
        return _refused_by(entries[0], MAX_BLOCK_IN_QUEUE) if entries else Refusal(MAX_BLOCK_IN_QUEUE)

    def _is_first(self, primitive: Primitive, claim: Claim, key: bytes) -> bool:
        """Return whether no waiter of the fair queue blocks ``claim``. Readers do not block a reader."""
        for token, each in self.waiters.get(key, {}).items():
            if token == claim.token:
                break
            if each.primitive.access and "w" in (each.primitive.access, primitive.access):
                return False
        return True

    def _hold(self, primitive: Primitive, claim: Claim, key: bytes, now: float) -> None:
        before = {claim.token}
        if primitive is ADOPT:
            before, claim = {claim.token, claim.previous}, claim._replace(previous=b"")
        kept = [entry for entry in self.live_holders(key, now) if entry.claim.token not in before]
        self.held[key] = [*kept, Holder(claim, now + max(claim.ttl, primitive.period), _one(primitive))]

    # ── waiters ──────────────────────────────────────────────────────────────────────────────

    def leave(self, claim: Claim) -> None:
        """Remove ``claim`` from the waiters. If the claim was in a fair queue, wake the other waiters."""
        for keys in claim.all_keys:
            waiters = self.waiters.get(keys.lock, {})
            left = waiters.pop(claim.token, None)
            if left and not waiters:
                del self.waiters[keys.lock]
            if left and left.primitive.access:
                self.wake(keys.lock)

    def wake(self, *all_keys: bytes) -> None:
        """Wake all waiters for the locks with these keys: they try again."""
        for key in all_keys:
            for each in self.waiters.get(key, {}).values():
                each.wake()

    def wake_all(self) -> None:
        """Wake all waiters for locks, and all waiting tasks."""
        with self.mutex:
            self.wake(*self.waiters)
            self.tasks.wake_all()


def _one(primitive: Primitive) -> Primitive:
    return MUTEX if isinstance(primitive, SeveralMutexes) else primitive


def _refused_by(entry: Holder, remaining: float) -> Refusal:
    return Refusal(remaining, entry.claim.owner.decode(errors="replace"))


def _is_mine(entry: Holder, claim: Claim) -> bool:
    return bool(claim.holder and entry.claim.holder == claim.holder) or entry.claim.token == claim.token


def blockers(entries: list[Holder], wanted: Primitive, claim: Claim) -> list[Holder]:
    """Return the holders among ``entries`` that block ``claim``. ``wanted``: the primitive of the claim."""
    if not entries:
        return entries
    primitive = entries[0].primitive
    if primitive.kind in ("rlock", "rwlock"):
        others = [entry for entry in entries if entry.claim.holder != claim.holder]
    else:
        others = [entry for entry in entries if entry.claim.token != claim.token]
    if wanted.kind == primitive.kind == "rwlock":
        return [entry for entry in others if "w" in (entry.primitive.access, wanted.access)]
    return others if len(others) >= primitive.limit else []


def digest_of(entries: list[Holder]) -> str:
    """Return one digest for all holders in ``entries``, as ``describe.lua`` does."""
    return sha1(b"\n".join(sorted(map(_value, entries))), usedforsecurity=False).hexdigest()


def described(entries: list[Holder]) -> tuple[bytes, Any]:
    """Return the Redis type and the value of a lock with the holders ``entries``, as ``describe.lua`` does."""
    kind = entries[0].primitive.kind
    if kind == "mutex":
        return b"string", _value(entries[0])
    records = [f"{kind}@0 {each.primitive.access}".rstrip().encode() + b" " for each in entries]
    return b"hash", [part for pair in zip(map(_value, entries), records, strict=True) for part in pair]


def _value(entry: Holder) -> bytes:
    return entry.claim.token + b" " + entry.claim.owner
