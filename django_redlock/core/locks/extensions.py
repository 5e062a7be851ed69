"""Extensions that are under way: one at a time for each lease, since a server may carry out two in any order."""

from __future__ import annotations

from ..waiting.waiters import WakeEvent


class Extension:
    """A request to extend a lease, from before it is sent until its outcome is known."""

    __slots__ = ("_wake_events", "released_meanwhile", "ttl")

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        self.released_meanwhile = False  # by a release: the first of the two has ended
        self._wake_events: list[WakeEvent] = []

    def new_wake_event(self) -> WakeEvent:
        """A new bell that rings when the outcome is known."""
        bell = WakeEvent()
        self._wake_events.append(bell)
        return bell

    def set(self) -> None:
        """Wake every thread and task that waits for the outcome."""
        for bell in self._wake_events:
            bell.set()


in_flight: dict[bytes, Extension] = {}  # token -> extension; of all leases of this process
