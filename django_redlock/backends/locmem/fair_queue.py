"""The fair queues of one location in memory: as ``core/lua/fair_queue.lua``, but entries do not lapse."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.primitives.base import Primitive
from ...core.values import Claim

ABANDONED_SECONDS = 1.0  # after which a woken waiter that does not try again counts as gone


class QueueEntry:
    """A waiter. ``wake`` wakes it while it waits. ``woken``: when it was woken, until it tries again."""

    def __init__(self, primitive: Primitive, claim: Claim) -> None:
        self.primitive = primitive
        self.claim = claim
        self.wake: Callable[[], Any] | None = None
        self.woken = math.inf


class FairQueues:
    """The waiters by name, in order of arrival. Used under the mutex of the `LockTable`."""

    def __init__(self) -> None:
        self._entries: dict[str, list[QueueEntry]] = {}

    def join(self, primitive: Primitive, claim: Claim) -> None:
        """Add ``claim``, or keep it in its place."""
        entry = self.entry(claim)
        if entry is None:
            self._entries.setdefault(claim.name, []).append(QueueEntry(primitive, claim))
        else:
            entry.woken = math.inf

    def leave(self, claim: Claim) -> bool:
        """Remove ``claim``, and return whether it was queued."""
        entry = self.entry(claim)
        if entry is None:
            return False
        self._entries[claim.name].remove(entry)
        if not self._entries[claim.name]:
            del self._entries[claim.name]
        return True

    def entry(self, claim: Claim) -> QueueEntry | None:
        """The entry of ``claim``."""
        return next((each for each in self._entries.get(claim.name, ()) if each.claim.token == claim.token), None)

    def claims(self, name: str) -> list[Claim]:
        """The claims of all waiters."""
        return [each.claim for each in self._entries.get(name, ())]

    def live_entries(self, name: str, now: float) -> list[QueueEntry]:
        """The entries that do not count as gone."""
        return [each for each in self._entries.get(name, ()) if now - each.woken <= ABANDONED_SECONDS]

    def is_first(self, primitive: Primitive, claim: Claim, now: float) -> bool:
        """Whether no waiter is before ``claim``, but readers before a reader."""
        for each in self.live_entries(claim.name, now):
            if each.claim.token == claim.token:
                break
            if "w" in (each.primitive.access, primitive.access):
                return False
        return True

    def to_wake(
        self, name: str, now: float, blocked: Callable[[Primitive, Claim], Sequence[Any]]
    ) -> list[Callable[[], Any]]:
        """The functions that wake the first waiters that are not ``blocked``: readers up to a writer, or a writer."""
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
