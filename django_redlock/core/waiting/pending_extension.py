"""Limits a lease to one extension at a time, because a server may run two extensions in any order.

While an extension is in flight, further callers of ``extend()`` wait for its outcome.
"""

from __future__ import annotations

from ..values import Lease
from .wake_event import WakeEvent


class Extension:
    """A pending extension of ``lease`` to ``ttl`` seconds. It ends when the outcome of its request is known."""

    __slots__ = ("_wake_events", "lease", "release_ended", "ttl")

    def __init__(self, lease: Lease, ttl: float) -> None:
        self.lease = lease
        self.ttl = ttl
        # If the lease is released while the extension is in flight: True once the first of the two requests has ended.
        self.release_ended = False
        self._wake_events: tuple[WakeEvent, ...] = ()

    def new_wake_event(self) -> WakeEvent:
        """Return an event on which the calling thread or task can wait. The event is set when the outcome is known."""
        event = WakeEvent()
        self._wake_events += (event,)
        return event

    def finish(self) -> None:
        """Wake all threads and tasks that wait for the outcome."""
        for event in self._wake_events:
            event.set()
