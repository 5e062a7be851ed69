"""Locks in the memory of one process, with the semantics of the real ones: for tests and development."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ...core.flow.requests import Flow
from ...core.fork import on_fork
from ...core.keys import keys_for, lock_name_of
from ...core.lock_info import LockInfo, mutex_kind, visible_token_prefix
from ...core.owner import Owner
from ...core.primitives.base import KINDS, MUTEX, Primitive
from ...core.primitives.fair import FAIR
from ...core.values import Claim, Lease, Refusal
from ...history.counters import ALL_LOCKS, MINUTES, OTHER_LOCKS, MinuteStats, merge_texts, read_minute
from ..storage import StorageBackend
from .fair_queue import QueueEntry
from .table import LockTable, SideTable, blockers, digest_of, wake_nobody

Other = TypeVar("Other", bound=SideTable)

_tables: dict[str, LockTable] = {}
on_fork(_tables.clear)


class LocMemBackend(StorageBackend):
    """Locks of one process. Backends with the same ``location`` and ``key_prefix`` share them. Options: `Backend`."""

    kinds = KINDS
    fair = FAIR
    does_io = False

    def __init__(self, location: Any = "", **options: Any) -> None:
        super().__init__(location, **options)
        self._where = f"{location}\0{self.key_prefix}"

    @property
    def table(self) -> LockTable:
        # In one step: of two threads that come first, both must get the same.
        return _tables.get(self._where) or _tables.setdefault(self._where, LockTable())

    def clear(self) -> None:
        """Forget every lock of this location, as a Redis that was flushed."""
        _tables.pop(self._where, None)

    def beside(self, make: Callable[[], Other]) -> Other:
        """What others keep beside these locks, made if there is nothing yet: listed, released and cleared with them."""
        space = self.table
        with space.mutex:
            space.side_table = kept = space.side_table or make()
        return kept

    def acquire_once(self, claim: Claim) -> Lease | Refusal:
        return self.acquire_kind_once(MUTEX, claim)

    def acquire_kind_once(self, primitive: Primitive, claim: Claim) -> Lease | Refusal:
        space, now, parts = self.table, self.clock(), self._split(claim)
        with space.mutex:
            if primitive.kind == "striped":
                outcome = space.grant_any(claim, parts, now)
            elif primitive.kind == "multilock":
                outcome = space.grant_all(claim, parts, now)
            else:
                outcome = space.refusal(primitive, claim, now) or space.grant(primitive, claim, now)
            following = [space.next_wake(part.name, now) for part in parts]
        for wake in following:
            wake()
        return outcome

    def _split(self, claim: Claim) -> list[Claim]:
        """What is claimed of each lock. Most claims are about one."""
        one = claim._replace(more_keys=(), require_all=False)
        return [
            one._replace(name=lock_name_of(self.encoded_prefix, keys.lock) or "", keys=keys) for keys in claim.all_keys
        ]

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        now = self.clock()
        parts = self._split(lease.claim)
        if now >= lease.valid_until or not all(self._change(part, now, expires=now + ttl) for part in parts):
            return None
        return lease.extended(now, ttl)

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        space, now = self.table, self.clock()
        ends, parts = now + max(keep, 0.0), self._split(claim)
        nobody_s = [part._replace(holder=b"") for part in parts]
        freed = [part for part in nobody_s if self._change(part, now, expires=ends, claim=part)]
        with space.mutex:
            following = [space.next_wake(part.name, now) for part in freed]
        for wake in following:
            wake()
        return len(freed) == len(parts)

    def _change(self, mine: Claim, now: float, **change: Any) -> bool:
        """Change what ``mine`` holds; whether it holds anything."""
        space = self.table
        with space.mutex:
            entries = space.live_holders(mine.name, now)
            for index, entry in enumerate(entries):
                if entry.claim.token == mine.token:
                    entries[index] = entry._replace(**change)
                    return True
        return False

    def describe_once(self, name: str) -> LockInfo | None:
        space, now = self.table, self.clock()
        with space.mutex:
            entries = space.live_holders(name, now)
            waiting = [*space.fair_queues.claims(name), *(claim for claim, _ in space.queues.get(name, ()))]
            queue = tuple(Owner.parse(claim.owner) for claim in waiting)
        if not entries:
            annex: SideTable | None = space.side_table
            return annex.describe(keys_for(self.encoded_prefix, name.encode()).lock, name, now) if annex else None
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
        space = self.table
        others = (
            [lock_name_of(self.encoded_prefix, key) for key in space.side_table.lock_keys()] if space.side_table else []
        )
        with space.mutex:
            return [*space.held, *filter(None, others)]

    def force_release_once(self, name: str, digest_seen: str) -> bool:
        space, now = self.table, self.clock()
        with space.mutex:
            entries = space.live_holders(name, now)
            if not entries and space.side_table:
                return bool(
                    space.side_table.force_release(keys_for(self.encoded_prefix, name.encode()).lock, now, digest_seen)
                )
            if not entries or digest_seen not in ("", digest_of(entries)):
                return False
            del space.held[name]
            wake = space.next_wake(name, now)
        wake()
        return True

    def _add_history(self, minute: int, texts: Mapping[str, str]) -> Flow[None]:
        space = _tables.get(self._where)
        if space is None:  # cleared meanwhile: nothing of it is to come back
            return
        with space.mutex:
            space.minutes = {each: kept for each, kept in space.minutes.items() if each > minute - MINUTES}
            kept = space.minutes.setdefault(minute, {})
            for name, text in texts.items():
                where = name if name in (ALL_LOCKS, *kept) or len(kept) <= self.history else OTHER_LOCKS
                kept[where] = merge_texts([kept.get(where, ""), text])
        yield from ()

    def _read_history(self, name: str, minutes: Sequence[int]) -> Flow[list[MinuteStats]]:
        with self.table.mutex:
            kept = [(minute, self.table.minutes.get(minute, {})) for minute in minutes]
        yield from ()
        return [read_minute(minute * 60.0, [texts.get(name, "")], OTHER_LOCKS not in texts) for minute, texts in kept]

    def join_queue(self, primitive: Primitive, claim: Claim) -> None:
        space = self.table
        with space.mutex:
            space.fair_queues.join(primitive, claim)

    def leave_queue(self, claim: Claim) -> None:
        space = self.table
        with space.mutex:
            wake = space.next_wake(claim.name, self.clock()) if space.fair_queues.leave(claim) else wake_nobody
        wake()

    def _listen(self, place: QueueEntry, wake: Callable[[], Any]) -> Callable[[], None]:
        """Wake one who stands in line when its turn comes, at once if it has come."""

        def cancel() -> None:
            place.wake = None

        space = self.table
        with space.mutex:
            place.wake = wake
            now = space.next_wake(place.claim.name, self.clock())
        now()
        return cancel

    def subscribe(self, claim: Claim, wake: Callable[[], Any]) -> Callable[[], None]:
        if place := self.table.fair_queues.entry(claim):
            return self._listen(place, wake)
        space, tickets = self.table, [(part, wake) for part in self._split(claim)]

        def cancel() -> None:
            following = []
            with space.mutex:
                for ticket in tickets:
                    name = ticket[0].name
                    if ticket in (queue := space.queues.get(name, ())):
                        queue.remove(ticket)  # type: ignore[union-attr]
                    else:  # woken, and may not be able to use that any more: pass it on if the lock is still free
                        following.append(space.next_wake(name, self.clock()))
            for passed_on in following:
                passed_on()

        with space.mutex:
            blocked = [
                ticket
                for ticket in tickets
                if blockers(space.live_holders(ticket[0].name, self.clock()), None, ticket[0])
            ]
            if claim.require_all and blocked:
                tickets = blocked[:1]
            if len(blocked) >= len(tickets):
                for ticket in tickets:
                    space.queues[ticket[0].name].append(ticket)
                return cancel
        wake()
        return cancel
