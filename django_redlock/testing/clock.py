"""A clock that can be put forward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any

from ..core.renewal import renewal
from ..core.renewal.work import extend_all
from ..core.values import Seconds, seconds


class Clock:
    """For a backend's ``clock``: it goes on by itself like any clock, and `advance` puts it forward.

    Locks in memory follow it altogether: leases, waits and what is said of them. With a Redis only the holder's own
    reckoning does.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._moved: list[Callable[[], Any]] = []

    def __call__(self) -> float:
        return monotonic() + self._ahead

    def advance(self, time: Seconds) -> None:
        """Let ``time`` seconds pass now, as if the process had been stopped for so long.

        Leases that don't last until then end, and their holders and those who wait are told; other leases that are due
        are renewed before this returns. Raises ``ValueError`` unless it is positive.
        """
        self._ahead += seconds(time, "time")
        for wake in tuple(self._moved):
            wake()
        extend_all(self._due())

    def on_move(self, wake: Callable[[], Any]) -> Callable[[], None]:
        """Have ``wake`` called whenever the clock is put forward; returns how to end that."""
        self._moved.append(wake)
        return lambda: self._moved.remove(wake)

    def _due(self) -> list[Any]:
        """The locks on this clock that would have been renewed by now, or have ended."""
        watched = [target for _, target in list(renewal.entries.values()) if isinstance(target, weakref.ref)]
        locks = [lock for target in watched if (lock := target()) is not None and lock.store.clock is self]
        return [
            lock
            for lock in locks
            if (lease := lock.current_lease()) and lease.valid_until - self() <= lease.ttl * 2 / 3
        ]
