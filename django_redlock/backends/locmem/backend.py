"""Locks in the memory of one process, for tests and development. They behave like locks in Redis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ...core.contract import Store
from ...core.keys import keys_for, lock_name_of
from ...core.lock_info import LockInfo, mutex_kind, visible_token_prefix
from ...core.owner import Owner
from ...core.primitives.base import KINDS, MUTEX, Primitive
from ...core.primitives.fair import FAIR
from ...core.primitives.multi import ADOPT
from ...core.primitives.periodic import PERIODIC, Period
from ...core.process.fork import on_fork
from ...core.values import Claim, Lease, Refusal
from ..storage import StorageBackend
from .fair_queue import QueueEntry
from .table import LockTable, blockers, digest_of, wake_nobody
from .task_store import MemoryStore
from .task_table import TaskTable

_tables: dict[str, LockTable] = {}
on_fork(_tables.clear)


class LocMemBackend(StorageBackend):
    """Locks in the memory of one process. Options as for `Backend`.

    Backends with the same ``location`` and ``key_prefix`` share their locks.
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

    def acquire_once(self, claim: Claim) -> Lease | Refusal:
        return self.acquire_kind_once(MUTEX, claim)

    def acquire_kind_once(self, primitive: Primitive, claim: Claim) -> Lease | Refusal:
        table, now, parts = self.table, self.clock(), self._split(claim)
        with table.mutex:
            if primitive.kind == "striped":
                outcome = table.grant_any(claim, parts, now)
            elif primitive is ADOPT:
                outcome = table.adopt(claim, parts, now)
            elif primitive.kind == "multilock":
                outcome = table.grant_all(claim, parts, now)
            else:
                outcome = table.refusal(primitive, claim, now) or table.grant(primitive, claim, now)
            following = [table.next_wake(part.name, now) for part in parts]
        for wake in following:
            wake()
        return outcome

    def _split(self, claim: Claim) -> list[Claim]:
        """Return one claim for each lock that ``claim`` asks for."""
        one = claim._replace(require_all=False)
        return [
            one._replace(name=lock_name_of(self.encoded_prefix, keys.lock) or "", all_keys=(keys,))
            for keys in claim.all_keys
        ]

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        now = self.clock()
        parts = self._split(lease.claim)
        period = lease.claim.payload
        least = lease.since + period.seconds if isinstance(period, Period) else 0.0
        ends = max(now + ttl, least)
        if now >= lease.valid_until or not all(self._change(part, now, expires=ends) for part in parts):
            return None
        return lease.extended(now, ttl)

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        table, now = self.table, self.clock()
        ends, parts = now + max(keep, 0.0), self._split(claim)
        owner = b'{"state":"done",' + claim.owner[1:] if keep > 0 else claim.owner
        nobody_s = [part._replace(payload=b"", owner=owner) for part in parts]
        freed = [part for part in nobody_s if self._change(part, now, expires=ends, claim=part)]
        with table.mutex:
            following = [table.next_wake(part.name, now) for part in freed]
        for wake in following:
            wake()
        return len(freed) == len(parts)

    def _change(self, mine: Claim, now: float, **change: Any) -> bool:
        """Change fields in the `Holder` entry of the claim ``mine``. Returns whether the claim holds its lock.

        Changes nothing if the claim doesn't hold its lock at the time ``now`` (seconds of the backend's clock).
        """
        table = self.table
        with table.mutex:
            entries = table.live_holders(mine.name, now)
            for index, entry in enumerate(entries):
                if entry.claim.token == mine.token:
                    entries[index] = entry._replace(**change)
                    return True
        return False

    def describe_once(self, name: str) -> LockInfo | None:
        table, now = self.table, self.clock()
        with table.mutex:
            entries = table.live_holders(name, now)
            waiting = [*table.fair_queues.claims(name), *(claim for claim, _ in table.queues.get(name, ()))]
            queue = tuple(Owner.parse(claim.owner) for claim in waiting)
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
            if len(kept) == len(entries):
                return False
            if kept:
                table.held[name] = kept
            else:
                del table.held[name]
            wake = table.next_wake(name, now)
        wake()
        return True

    def join_queue(self, primitive: Primitive, claim: Claim) -> None:
        table = self.table
        with table.mutex:
            table.fair_queues.join(primitive, claim)

    def leave_queue(self, claim: Claim) -> None:
        table = self.table
        with table.mutex:
            wake = table.next_wake(claim.name, self.clock()) if table.fair_queues.leave(claim) else wake_nobody
        wake()

    def _listen(self, entry: QueueEntry, wake: Callable[[], Any]) -> Callable[[], None]:
        """Have ``wake`` called as soon as the lock is free and ``entry`` is first in the fair queue, possibly at once.

        Returns a function that cancels the call.
        """

        def cancel() -> None:
            entry.wake = None

        table = self.table
        with table.mutex:
            entry.wake = wake
            now = table.next_wake(entry.claim.name, self.clock())
        now()
        return cancel

    def subscribe(self, claim: Claim, wake: Callable[[], Any]) -> Callable[[], None]:
        if entry := self.table.fair_queues.entry(claim):
            return self._listen(entry, wake)
        table, waiters = self.table, [(part, wake) for part in self._split(claim)]

        def cancel() -> None:
            following = []
            with table.mutex:
                for waiter in waiters:
                    name = waiter[0].name
                    if waiter in (queue := table.queues.get(name, ())):
                        queue.remove(waiter)  # type: ignore[union-attr]
                    else:  # this waiter was woken and has given up: wake the next waiter if the lock is free
                        following.append(table.next_wake(name, self.clock()))
            for passed_on in following:
                passed_on()

        with table.mutex:
            now = self.clock()
            blocked = [
                waiter
                for waiter in waiters
                if blockers(table.live_holders(waiter[0].name, now), None, waiter[0])
                or table.fair_queues.live_entries(waiter[0].name, now)
            ]
            if claim.require_all and blocked:
                waiters = blocked[:1]
            if len(blocked) >= len(waiters):
                for waiter in waiters:
                    table.queues[waiter[0].name].append(waiter)
                return cancel
        wake()
        return cancel
