"""A clock that tests can advance."""

from __future__ import annotations

from typing import Any

from ..backends.locmem.backend import wake_all
from ..core.background.work import background, extend_all
from ..core.process.clock import monotonic
from ..core.values import Seconds, seconds


class Clock:
    """A clock for a backend's option ``clock``. It runs like the monotonic clock, and `advance` moves it forward.

    Locks in memory use this clock for leases, waits and descriptions. With Redis, the server's clock decides when a
    lease ends, and this clock affects only the time at which the holder regards its lease as ended.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return monotonic() + self._ahead

    def advance(self, time: Seconds) -> None:
        """Move the clock forward by ``time`` seconds, as if the process had been stopped for that time.

        Leases that end in that time are lost, and waiters wake up. Leases that are due for renewal are renewed before
        this method returns. Raises ``ValueError`` unless ``time`` is positive.
        """
        self._ahead += seconds(time, "time")
        wake_all()
        extend_all(self._due())

    def _due(self) -> list[Any]:
        """Return the locks with this clock whose lease is due for renewal or has ended."""
        holds = [hold for hold in background.holds() if hold.store.clock is self]
        return [hold for hold in holds if hold.active and hold.lease.valid_until - self() <= hold.lease.ttl * 2 / 3]
