"""Extensions that are under way: one at a time for each lease, since a server may carry out two in any order."""

from __future__ import annotations

from .tickets import Bell


class Extension:
    """A request to extend a lease, from before it is sent until its outcome is known."""

    __slots__ = ("_bells", "crossed", "ttl")

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        self.crossed = False  # by a release: the first of the two has ended
        self._bells: list[Bell] = []

    def bell(self) -> Bell:
        """A new bell that rings when the outcome is known."""
        bell = Bell()
        self._bells.append(bell)
        return bell

    def ring(self) -> None:
        """Wake every thread and task that waits for the outcome."""
        for bell in self._bells:
            bell.ring()


under_way: dict[bytes, Extension] = {}  # token -> extension; of all leases of this process
