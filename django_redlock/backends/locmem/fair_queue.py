"""Who stands in line for the locks of one LOCATION in memory: as ``core/lua/fair_queue.lua``, without the lapsing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.primitives.base import Primitive
from ...core.values import Claim

ABANDONED_SECONDS = 1.0  # seconds after which one who was woken and didn't come counts as gone


class QueueEntry:
    """One in line. ``wake``: how, while it waits; ``woken``: when, until it has come."""

    def __init__(self, primitive: Primitive, claim: Claim) -> None:
        self.primitive = primitive
        self.claim = claim
        self.wake: Callable[[], Any] | None = None
        self.woken = math.inf


class FairQueues:
    """The lines by name, in order of arrival. Used under the mutex of its space."""

    def __init__(self) -> None:
        self._entries: dict[str, list[QueueEntry]] = {}

    def join(self, primitive: Primitive, claim: Claim) -> None:
        """Stand in line, or go on to."""
        place = self.entry(claim)
        if place is None:
            self._entries.setdefault(claim.name, []).append(QueueEntry(primitive, claim))
        else:
            place.woken = math.inf

    def leave(self, claim: Claim) -> bool:
        """Whether it stood there."""
        place = self.entry(claim)
        if place is None:
            return False
        self._entries[claim.name].remove(place)
        if not self._entries[claim.name]:
            del self._entries[claim.name]
        return True

    def entry(self, claim: Claim) -> QueueEntry | None:
        """Its place."""
        return next((each for each in self._entries.get(claim.name, ()) if each.claim.token == claim.token), None)

    def claims(self, name: str) -> list[Claim]:
        """All who stand there."""
        return [each.claim for each in self._entries.get(name, ())]

    def live_entries(self, name: str, now: float) -> list[QueueEntry]:
        """Those who count."""
        return [each for each in self._entries.get(name, ()) if now - each.woken <= ABANDONED_SECONDS]

    def is_first(self, primitive: Primitive, claim: Claim, now: float) -> bool:
        """Whether nobody goes before it."""
        for each in self.live_entries(claim.name, now):
            if each.claim.token == claim.token:
                break
            if "w" in (each.primitive.access, primitive.access):
                return False
        return True

    def to_wake(
        self, name: str, now: float, blocked: Callable[[Primitive, Claim], Sequence[Any]]
    ) -> list[Callable[[], Any]]:
        """How to wake those whose turn it is and who aren't ``blocked``: all readers up to a writer, or a writer."""
        turn: list[QueueEntry] = []
        for each in self.live_entries(name, now):
            if blocked(each.primitive, each.claim) or (turn and each.primitive.access == "w"):
                break
            turn.append(each)
            if each.primitive.access == "w":
                break
        wakes = []
        for each in turn:
            if each.wake is not None and each.woken == math.inf:
                each.woken = now
                wakes.append(each.wake)
        return wakes
