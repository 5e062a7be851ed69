"""The fair queues of one location in memory, like those of ``core/lua/fair_queue.lua`` but without a time limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...core.primitives.base import Primitive
from ...core.values import Claim

ABANDONED_SECONDS = 1.0  # a woken waiter that does not try again within this time counts as gone


class QueueEntry:
    """A waiter in a fair queue.

    ``wake``: the function that wakes the waiter; ``None`` while the waiter does not wait. ``woken``: when the waiter
    was woken, in seconds of the backend's clock; infinite if it was not woken since its last try.
    """

    def __init__(self, primitive: Primitive, claim: Claim) -> None:
        self.primitive = primitive
        self.claim = claim
        self.wake: Callable[[], Any] | None = None
        self.woken = math.inf


class FairQueues:
    """The waiters by lock name, in order of arrival. Callers must hold the mutex of the `LockTable`."""

    def __init__(self) -> None:
        self._entries: dict[str, list[QueueEntry]] = {}

    def join(self, primitive: Primitive, claim: Claim) -> None:
        """Add ``claim`` at the end of its lock's queue. A claim that is already queued keeps its place."""
        entry = self.entry(claim)
        if entry is None:
            self._entries.setdefault(claim.name, []).append(QueueEntry(primitive, claim))
        else:
            entry.woken = math.inf

    def leave(self, claim: Claim) -> bool:
        """Remove ``claim`` from its lock's queue. Returns whether the claim was queued."""
        entry = self.entry(claim)
        if entry is None:
            return False
        self._entries[claim.name].remove(entry)
        if not self._entries[claim.name]:
            del self._entries[claim.name]
        return True

    def entry(self, claim: Claim) -> QueueEntry | None:
        """Return the entry of ``claim``; ``None`` if it is not queued."""
        return next((each for each in self._entries.get(claim.name, ()) if each.claim.token == claim.token), None)

    def claims(self, name: str) -> list[Claim]:
        """Return the claims of all waiters for the lock ``name``."""
        return [each.claim for each in self._entries.get(name, ())]

    def live_entries(self, name: str, now: float) -> list[QueueEntry]:
        """Return the entries for the lock ``name``, without waiters woken more than `ABANDONED_SECONDS` ago.

        ``now``: seconds of the backend's clock.
        """
        return [each for each in self._entries.get(name, ()) if now - each.woken <= ABANDONED_SECONDS]

    def is_first(self, primitive: Primitive, claim: Claim, now: float) -> bool:
        """Return whether no live waiter in front of ``claim`` blocks the claim. Readers do not block a reader.

        ``primitive``: the kind of lock that the claim asks for. ``now``: seconds of the backend's clock.
        """
        for each in self.live_entries(claim.name, now):
            if each.claim.token == claim.token:
                break
            if "w" in (each.primitive.access, primitive.access):
                return False
        return True

    def to_wake(
        self, name: str, now: float, blocked: Callable[[Primitive, Claim], Sequence[Any]]
    ) -> list[Callable[[], Any]]:
        """Mark the waiters whose turn it is as woken, and return the functions that wake them.

        It is the turn of all readers in front of the first writer, or of a writer that is first. ``blocked`` returns
        the holders that block a claim. A waiter that is blocked, and all waiters behind it, are not woken. ``now``:
        seconds of the backend's clock.
        """
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
