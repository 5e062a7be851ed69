"""Locks in the memory of one process, for tests and development. They behave like locks in Redis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ...core.contract import Store
from ...core.keys import keys_for, lock_name_of
from ...core.lock_info import LockInfo, mutex_kind, visible_token_prefix
from ...core.owner import Owner
from ...core.primitives.base import KINDS, Primitive
from ...core.primitives.fair import FAIR
from ...core.primitives.multi import ADOPT
from ...core.primitives.periodic import PERIODIC, Period
from ...core.process.fork import on_fork
from ...core.values import Claim, Lease, Refusal
from ..storage import StorageBackend
from .table import LockTable, QueueEntry, digest_of
from .task_store import MemoryStore
from .task_table import TaskTable

_tables: dict[str, LockTable] = {}
on_fork(_tables.clear)


class LocMemBackend(StorageBackend):
    """Locks in the memory of one process. Options as for `Backend`.

    Backends with the same ``location`` and ``key_prefix`` share their locks. There is no history.
    """

    kinds = KINDS
    fair = FAIR
    adopting: Primitive | None = ADOPT
    periodic = PERIODIC
    does_io = False

    def __init__(self, location: Any = "", **options: Any) -> None:
        super().__init__(location, **options)
        self._where = f"{location}\0{self.key_prefix}"

    @property
    def table(self) -> LockTable:
        # setdefault() is atomic: two threads must not get different tables.
        return _tables.get(self._where) or _tables.setdefault(self._where, LockTable())

    def clear(self) -> None:
        """Forget every lock of this location, like FLUSHDB on a Redis server."""
        _tables.pop(self._where, None)

    @property
    def tasks(self) -> TaskTable:
        """The records of tasks of this location. They are listed, force-released and cleared together with the locks.

        Raises ``LockUnavailable`` as `LockTable.mutex` does.
        """
        table = self.table
        with table.mutex:
            return table.tasks

    def task_store(self) -> Store:
        return MemoryStore(self)

    def acquire_kind_once(self, primitive: Primitive, claim: Claim) -> Lease | Refusal:
        table = self.table
        with table.mutex:
            return table.acquire(primitive, claim, self._split(claim), self.clock())

    def _split(self, claim: Claim) -> list[Claim]:
        """Return one claim for each lock that ``claim`` asks for."""
        one = claim._replace(require_all=False)
        return [
            one._replace(name=lock_name_of(self.encoded_prefix, keys.lock) or "", all_keys=(keys,))
            for keys in claim.all_keys
        ]

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        now, period = self.clock(), lease.claim.payload
        least = lease.since + period.seconds if isinstance(period, Period) else 0.0
        ends = max(now + ttl, least)
        if now >= lease.valid_until or not self._change(lease.claim, now, expires=ends):
            return None
        return lease.extended(now, ttl)

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        now = self.clock()
        without_holder = {"payload": b"", "owner": b'{"state":"done",' + claim.owner[1:]} if keep > 0 else {}
        held = self._change(claim, now, expires=now + max(keep, 0.0), **without_holder)
        self._wake(*(part.name for part in self._split(claim)))  # also of a kept lock: its end is nearer now
        return held

    def _change(self, claim: Claim, now: float, *, expires: float, **change: Any) -> bool:
        """Change the end of the lease of ``claim``, and fields of the claim in the table.

        Returns whether the claim holds its locks at the time ``now`` (seconds of the backend's clock).
        """
        table, parts, found = self.table, self._split(claim), 0
        with table.mutex:
            for part in parts:
                entries = table.live_holders(part.name, now)
                for index, entry in enumerate(entries):
                    if entry.claim.token == claim.token:
                        entries[index] = entry._replace(expires=expires, claim=entry.claim._replace(**change))
                        found += 1
        return found == len(parts)

    def _wake(self, *names: str) -> None:
        with self.table.mutex:
            wakes = self.table.wakes(*names)
        for wake in wakes:
            wake()

    # ── inspection ───────────────────────────────────────────────────────────────────────────

    def describe_once(self, name: str) -> LockInfo | None:
        table, now = self.table, self.clock()
        with table.mutex:
            entries = table.live_holders(name, now)
            queue = tuple(Owner.parse(each.claim.owner) for each in table.waiters.get(name, ()))
        if not entries:
            return table.tasks.describe(keys_for(self.encoded_prefix, name.encode()).lock, name, now)
        last = max(entry.expires for entry in entries)
        holders = tuple(entry.owner for entry in entries)
        return LockInfo(
            name=name,
            kind=mutex_kind(name, holders[0]) if (kind := entries[0].primitive.kind) == "mutex" else kind,
            owner=holders[0],
            remaining=None if last == math.inf else last - now,
            waiters=len(queue),
            digest=digest_of(entries),
            queue=queue,
            token_prefix=visible_token_prefix(entries[0].claim.token) if len(entries) == 1 else "",
            holders=holders,
            digests=tuple(entry.digest for entry in entries),
        )

    def names(self) -> Iterable[str]:
        table = self.table
        others = [lock_name_of(self.encoded_prefix, key) for key in table.tasks.lock_keys()]
        with table.mutex:
            return [*table.held, *filter(None, others)]

    def force_release_once(self, name: str, digest: str) -> bool:
        table, now = self.table, self.clock()
        with table.mutex:
            entries = table.live_holders(name, now)
            if not entries:
                return table.tasks.force_release(keys_for(self.encoded_prefix, name.encode()).lock, now, digest)
            whole = digest in ("", digest_of(entries))
            kept = [] if whole else [entry for entry in entries if entry.digest != digest]
            table.held[name] = kept
        self._wake(name)
        return len(kept) < len(entries)

    # ── waiters ──────────────────────────────────────────────────────────────────────────────

    def join_queue(self, primitive: Primitive, claim: Claim) -> None:
        table = self.table
        with table.mutex:
            for part in self._split(claim):
                if table.waiter(part) is None:
                    table.add_waiter(QueueEntry(part, primitive))

    def leave_queue(self, primitive: Primitive, claim: Claim) -> None:
        table, parts = self.table, self._split(claim)
        with table.mutex:
            for waiter in filter(None, map(table.waiter, parts)):
                table.remove_waiter(waiter)
        if primitive.access:
            self._wake(claim.name)

    def subscribe(self, claim: Claim, wake: Callable[[], Any]) -> Callable[[], None]:
        table, refused = self.table, []
        with table.mutex:
            for part in self._split(claim):
                if waiter := table.waiter(part):
                    waiter.wake = wake
                    refused.append(table.refusal(waiter.primitive, part, self.clock()))
        if not (any(refused) if claim.require_all else all(refused)):
            wake()
        return lambda: None  # the entry stays in the queue until `leave_queue`
