"""One extension of a lease at a time, because a server may run two of them in any order; other callers wait."""

from __future__ import annotations

from ..values import Lease
from .waiters import WakeEvent


class Extension:
    """A request to extend ``lease`` to ``ttl`` seconds, from before it is sent until its outcome is known."""

    __slots__ = ("_wake_events", "lease", "release_ended", "ttl")

    def __init__(self, lease: Lease, ttl: float) -> None:
        self.lease = lease
        self.ttl = ttl
        self.release_ended = False  # the lease was released meanwhile; True: one of the two requests has ended
        self._wake_events: list[WakeEvent] = []

    def new_wake_event(self) -> WakeEvent:
        """An event for the calling thread or task that is set when the outcome is known."""
        event = WakeEvent()
        self._wake_events.append(event)
        return event

    def finish(self) -> None:
        """Wake all threads and tasks that wait for the outcome."""
        for event in self._wake_events:
            event.set()
