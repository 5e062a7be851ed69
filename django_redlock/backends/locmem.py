"""Locks in the memory of one process, with the semantics of the real ones: for tests and development."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..core.fork import on_fork
from ..core.held import Held, kind_of_mutex, prefix_of
from ..core.history import MINUTES, OTHERS, WHOLE, Minute, merged, read_minute
from ..core.keys import keys_for, name_of
from ..core.lease import Claim, Lease, Refusal
from ..core.line import FAIR
from ..core.owner import Owner
from ..core.primitives import KINDS, MUTEX, Primitive
from ..core.requests import Flow
from .locmem_line import Place
from .locmem_space import Annex, Space, digest_of, in_the_way, nobody
from .plain import PlainBackend

Other = TypeVar("Other", bound=Annex)

_spaces: dict[str, Space] = {}
on_fork(_spaces.clear)


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
        longer = {"expires": now + ttl, "renewed": now, "renewals": lease.renewals + 1}
        if now >= lease.valid_until or not all(self._change(part, now, **longer) for part in parts):
            return None
        return lease.prolonged(now, ttl)

    def free(self, claim: Claim, keep: float = 0.0) -> bool:
        space, now = self._space, self.clock()
        ends, parts = now + max(keep, 0.0), self._parts(claim)
        nobody_s = [part._replace(holder=b"") for part in parts]
        freed = [part for part in nobody_s if self._change(part, now, expires=ends, claim=part)]
        with space.mutex:
            following = [space.next_in_line(part.name, now) for part in freed]
        for wake in following:
            wake()
        return len(freed) == len(parts)

    def _change(self, mine: Claim, now: float, **change: Any) -> bool:
        """Change what ``mine`` holds; whether it holds anything."""
        space = self._space
        with space.mutex:
            entries = space.live(mine.name, now)
            for index, entry in enumerate(entries):
                if entry.claim.token == mine.token:
                    entries[index] = entry._replace(**change)
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
            digest=digest_of(entries),
            queue=queue,
            token_prefix=prefix_of(entries[0].claim.token) if len(entries) == 1 else "",
            holders=holders,
            digests=tuple(entry.digest for entry in entries),
            tenures=tuple(entry.tenure(now) for entry in entries),
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
            if not entries or digest_seen not in ("", digest_of(entries)):
                return False
            del space.held[name]
            wake = space.next_in_line(name, now)
        wake()
        return True

    def _add_history(self, minute: int, texts: Mapping[str, str]) -> Flow[None]:
        space = _spaces.get(self._where)
        if space is None:  # cleared meanwhile: nothing of it is to come back
            return
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
            wake = space.next_in_line(claim.name, self.clock()) if space.lines.leave(claim) else nobody
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
                ticket for ticket in tickets if in_the_way(space.live(ticket[0].name, self.clock()), None, ticket[0])
            ]
            if claim.every and blocked:
                tickets = blocked[:1]
            if len(blocked) >= len(tickets):
                for ticket in tickets:
                    space.queues[ticket[0].name].append(ticket)
                return cancel
        wake()
        return cancel
