"""Locks in the memory of one process, with the semantics of the real ones: for tests and development."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from ..core.held import Held, digest, kind_of_mutex, prefix_of, sharing
from ..core.history import MINUTES, OTHERS, WHOLE, Minute, merged, read_minute
from ..core.keys import keys_for, name_of
from ..core.lease import Claim, Lease, Refusal
from ..core.line import FAIR
from ..core.owner import Owner
from ..core.primitives import KINDS, MUTEX, Primitive
from ..core.replies import no_upgrade
from ..core.requests import Flow
from ..errors import LockError
from .locmem_line import GONE, Lines, Place
from .plain import PlainBackend


class Entry(NamedTuple):
    """Who holds a name, as what, and until when by the backend's clock."""

    claim: Claim
    expires: float
    primitive: Primitive

    @property
    def digest(self) -> str:
        return digest(self.claim)

    @property
    def owner(self) -> Owner:
        owner = Owner.parse(self.claim.owner)
        return sharing(owner, self.primitive.mode) if self.primitive.kind == "rwlock" else owner


class Annex(Protocol):
    """What else is kept under the keys of locks, by others who know what it means: the records of tasks."""

    def places(self) -> list[bytes]: ...

    def look(self, key: bytes, name: str, now: float) -> Held | None: ...

    def evict(self, key: bytes, now: float, digest: str) -> bool: ...


Other = TypeVar("Other", bound=Annex)


class Space:
    """The locks of one LOCATION."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.held: dict[str, list[Entry]] = {}
        self.queues: defaultdict[str, deque[tuple[Claim, Callable[[], Any]]]] = defaultdict(deque)
        self.lines = Lines()
        self.fence = 0
        self.annex: Any = None  # an `Annex`
        self.minutes: dict[int, dict[str, str]] = {}  # see `core.history`

    def live(self, name: str, now: float) -> list[Entry]:
        """Who holds ``name`` now; the others are forgotten."""
        entries = [entry for entry in self.held.get(name, ()) if entry.expires > now]
        if entries:
            self.held[name] = entries
        else:
            self.held.pop(name, None)
        return entries

    def refusal(self, primitive: Primitive, claim: Claim, now: float) -> Refusal | None:
        """Why ``claim`` can't be granted, if it can't. Raises ``LockError`` for a lock of another kind."""
        entries = self.live(claim.name, now)
        if entries and entries[0].primitive.kind != primitive.kind:
            raise LockError(claim.name, f"it is held as a {entries[0].primitive.kind}, not as a {primitive.kind}")
        others = _in_the_way(entries, primitive, claim)
        mine = {entry.primitive.mode for entry in entries if _is_mine(entry, claim)}
        if primitive.mode == "w" and mine == {"r"}:
            raise no_upgrade(claim.name)
        if not others:
            if mine or not primitive.mode or self.lines.first(primitive, claim, now):
                return None
            return Refusal(GONE, entries[0].claim.owner.decode(errors="replace") if entries else "")
        ends = (max if primitive.limit == 1 else min)(entry.expires for entry in others)
        return Refusal(ends - now, others[0].claim.owner.decode(errors="replace"))

    def grant(self, primitive: Primitive, claim: Claim, now: float) -> Lease:
        """The lease on what nothing is in the way of."""
        kept = [entry for entry in self.live(claim.name, now) if entry.claim.token != claim.token]
        self.held[claim.name] = [*kept, Entry(claim, now + claim.ttl, primitive)]
        self.lines.leave(claim)
        self.fence = max(self.fence + 1, time.time_ns() // 1000)
        return Lease.granted(claim, now, self.fence)

    def any_of(self, claim: Claim, parts: list[Claim], now: float) -> Lease | Refusal:
        """The first of these mutexes that is free, or why there is none: that one of the lease that ends first."""
        refusals = []
        for which, part in enumerate(parts, 1):
            if (refusal := self.refusal(MUTEX, part, now)) is None:
                return self.grant(MUTEX, part, now)._replace(claim=claim.chosen(which))
            refusals.append(refusal)
        return min(refusals)

    def all_of(self, claim: Claim, parts: list[Claim], now: float) -> Lease | Refusal:
        """All of these mutexes, or which is in the way."""
        for which, part in enumerate(parts, 1):
            if (refusal := self.refusal(MUTEX, part, now)) is not None:
                return refusal._replace(which=which)
        return [self.grant(MUTEX, part, now) for part in parts][-1]._replace(claim=claim)

    def next_in_line(self, name: str, now: float) -> Callable[[], Any]:
        """What wakes the first waiter, if it would get the lock; call it outside the mutex."""
        entries = self.live(name, now)
        if self.lines.alive(name, now):
            wakes = self.lines.to_wake(name, now, partial(_in_the_way, entries))
            return lambda: [each() for each in wakes]
        queue = self.queues.get(name)
        if not queue or _in_the_way(entries, None, queue[0][0]):
            return _nobody
        wake = queue.popleft()[1]
        if not queue:
            del self.queues[name]
        return wake


# Of those who hold a lock of this kind, who is another.
_ANOTHER: dict[str, Callable[[Claim, Claim], bool]] = {
    "mutex": lambda holder, claim: holder.token != claim.token,
    "semaphore": lambda holder, claim: holder.token != claim.token,
    "rlock": lambda holder, claim: holder.holder != claim.holder,
}


def _is_mine(entry: Entry, claim: Claim) -> bool:
    return bool(claim.holder and entry.claim.holder == claim.holder) or entry.claim.token == claim.token


def _in_the_way(entries: list[Entry], wanted: Primitive | None, claim: Claim) -> list[Entry]:
    """Because of whom ``claim`` can't be granted. ``wanted``: where it makes a difference as what."""
    if not entries:
        return entries
    primitive = entries[0].primitive
    if wanted is not None and wanted.kind == primitive.kind == "rwlock":
        others = [entry for entry in entries if entry.claim.holder != claim.holder]
        return [entry for entry in others if "w" in (entry.primitive.mode, wanted.mode)]
    others = [entry for entry in entries if _ANOTHER[primitive.kind](entry.claim, claim)]
    return others if len(others) >= primitive.limit else []


def _nobody() -> None:
    pass


_spaces: dict[str, Space] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spaces.clear)


class LocMemBackend(PlainBackend):
    """Locks of one process. Backends with the same ``location`` and ``key_prefix`` share them. Options: `Backend`."""

    kinds = KINDS
    fair = FAIR
    blocks = False

    def __init__(self, location: Any = "", **options: Any) -> None:
        super().__init__(location, **options)
        self._where = f"{location}\0{self.key_prefix}"

    @property
    def _space(self) -> Space:
        # In one step: of two threads that come first, both must get the same.
        return _spaces.get(self._where) or _spaces.setdefault(self._where, Space())

    def clear(self) -> None:
        """Forget every lock of this location, as a Redis that was flushed."""
        _spaces.pop(self._where, None)

    def annexed(self, make: Callable[[], Other]) -> Other:
        """What others keep beside these locks, made if there is nothing yet: listed, released and cleared with them."""
        space = self._space
        with space.mutex:
            space.annex = kept = space.annex or make()
        return kept

    def attempt(self, claim: Claim) -> Lease | Refusal:
        return self.attempt_as(MUTEX, claim)

    def attempt_as(self, primitive: Primitive, claim: Claim) -> Lease | Refusal:
        space, now, parts = self._space, self.clock(), self._parts(claim)
        with space.mutex:
            if primitive.kind == "striped":
                outcome = space.any_of(claim, parts, now)
            elif primitive.kind == "multilock":
                outcome = space.all_of(claim, parts, now)
            else:
                outcome = space.refusal(primitive, claim, now) or space.grant(primitive, claim, now)
            following = [space.next_in_line(part.name, now) for part in parts]
        for wake in following:
            wake()
        return outcome

    def _parts(self, claim: Claim) -> list[Claim]:
        """What is claimed of each lock. Most claims are about one."""
        one = claim._replace(others=(), every=False)
        return [one._replace(name=name_of(self._prefix, keys.lock) or "", keys=keys) for keys in claim.places]

    def prolong(self, lease: Lease, ttl: float) -> Lease | None:
        now = self.clock()
        parts = self._parts(lease.claim)
        if now >= lease.valid_until or not all(self._replace(part, now, now + ttl) for part in parts):
            return None
        return lease.prolonged(now, ttl)

    def free(self, claim: Claim, keep: float = 0.0) -> bool:
        space, now = self._space, self.clock()
        ends, parts = now + max(keep, 0.0), self._parts(claim)
        freed = [part for part in parts if self._replace(part, now, ends, part._replace(holder=b""))]
        with space.mutex:
            following = [space.next_in_line(part.name, now) for part in freed]
        for wake in following:
            wake()
        return len(freed) == len(parts)

    def _replace(self, claim: Claim, now: float, expires: float, by: Claim | None = None) -> bool:
        """Have what ``claim`` holds end at ``expires``; whether it holds anything."""
        space = self._space
        with space.mutex:
            entries = space.live(claim.name, now)
            for index, entry in enumerate(entries):
                if entry.claim.token == claim.token:
                    entries[index] = entry._replace(claim=by or entry.claim, expires=expires)
                    return True
        return False

    def look(self, name: str) -> Held | None:
        space, now = self._space, self.clock()
        with space.mutex:
            entries = space.live(name, now)
            waiting = [*space.lines.claims(name), *(claim for claim, _ in space.queues.get(name, ()))]
            queue = tuple(Owner.parse(claim.owner) for claim in waiting)
        if not entries:
            annex: Annex | None = space.annex
            return annex.look(keys_for(self._prefix, name.encode()).lock, name, now) if annex else None
        last = max(entry.expires for entry in entries)
        holders = tuple(entry.owner for entry in entries)
        return Held(
            name=name,
            kind=kind_of_mutex(name, holders[0]) if (kind := entries[0].primitive.kind) == "mutex" else kind,
            owner=holders[0],
            ttl=None if last == math.inf else last - now,
            waiters=len(queue),
            digest=_digest(entries),
            queue=queue,
            token_prefix=prefix_of(entries[0].claim.token) if len(entries) == 1 else "",
            holders=holders,
            digests=tuple(entry.digest for entry in entries),
        )

    def names(self) -> Iterable[str]:
        space = self._space
        others = [name_of(self._prefix, key) for key in space.annex.places()] if space.annex else []
        with space.mutex:
            return [*space.held, *filter(None, others)]

    def evict(self, name: str, digest_seen: str) -> bool:
        space, now = self._space, self.clock()
        with space.mutex:
            entries = space.live(name, now)
            if not entries and space.annex:
                return bool(space.annex.evict(keys_for(self._prefix, name.encode()).lock, now, digest_seen))
            if not entries or digest_seen not in ("", _digest(entries)):
                return False
            del space.held[name]
            wake = space.next_in_line(name, now)
        wake()
        return True

    def _add_history(self, minute: int, texts: Mapping[str, str]) -> Flow[None]:
        space = self._space
        with space.mutex:
            space.minutes = {each: kept for each, kept in space.minutes.items() if each > minute - MINUTES}
            kept = space.minutes.setdefault(minute, {})
            for name, text in texts.items():
                where = name if name in (WHOLE, *kept) or len(kept) <= self.history else OTHERS
                kept[where] = merged([kept.get(where, ""), text])
        yield from ()

    def _read_history(self, name: str, minutes: Sequence[int]) -> Flow[list[Minute]]:
        with self._space.mutex:
            kept = [(minute, self._space.minutes.get(minute, {})) for minute in minutes]
        yield from ()
        return [read_minute(minute * 60.0, [texts.get(name, "")], OTHERS not in texts) for minute, texts in kept]

    def line_up(self, primitive: Primitive, claim: Claim) -> None:
        space = self._space
        with space.mutex:
            space.lines.join(primitive, claim)

    def step_out(self, claim: Claim) -> None:
        space = self._space
        with space.mutex:
            wake = space.next_in_line(claim.name, self.clock()) if space.lines.leave(claim) else _nobody
        wake()

    def _listen(self, place: Place, wake: Callable[[], Any]) -> Callable[[], None]:
        """Wake one who stands in line when its turn comes, at once if it has come."""

        def cancel() -> None:
            place.wake = None

        space = self._space
        with space.mutex:
            place.wake = wake
            now = space.next_in_line(place.claim.name, self.clock())
        now()
        return cancel

    def subscribe(self, claim: Claim, wake: Callable[[], Any]) -> Callable[[], None]:
        if place := self._space.lines.place(claim):
            return self._listen(place, wake)
        space, tickets = self._space, [(part, wake) for part in self._parts(claim)]

        def cancel() -> None:
            following = []
            with space.mutex:
                for ticket in tickets:
                    name = ticket[0].name
                    if ticket in (queue := space.queues.get(name, ())):
                        queue.remove(ticket)  # type: ignore[union-attr]
                    else:  # woken, and may not be able to use that any more: pass it on if the lock is still free
                        following.append(space.next_in_line(name, self.clock()))
            for passed_on in following:
                passed_on()

        with space.mutex:
            blocked = [
                ticket for ticket in tickets if _in_the_way(space.live(ticket[0].name, self.clock()), None, ticket[0])
            ]
            if claim.every and blocked:
                tickets = blocked[:1]
            if len(blocked) >= len(tickets):
                for ticket in tickets:
                    space.queues[ticket[0].name].append(ticket)
                return cancel
        wake()
        return cancel


def _digest(entries: list[Entry]) -> str:
    """One for all who hold."""
    return " ".join(sorted(entry.digest for entry in entries))
