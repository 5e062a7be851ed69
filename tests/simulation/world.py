"""Virtual time, and everything that happens in it in a seeded order."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any


class World:
    """Time, chance, and the record of what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.troubled = 0.0  # until when what has gone wrong so far lasts
        self.forgot = -1.0  # when a server has last forgotten something
        self.log: list[str] = []
        self.flows: list[Any] = []  # all that were begun: none may be closed by chance, when somebody forgets it
        self._events: list[tuple[float, int, Callable[[], Any]]] = []
        self._count = 0

    def at(self, when: float, event: Callable[[], Any]) -> None:
        """Have ``event`` happen at ``when``."""
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, event))

    def after(self, delay: float, event: Callable[[], Any]) -> None:
        """Have ``event`` happen in ``delay`` seconds."""
        self.at(self.now + delay, event)

    def trouble(self, seconds: float) -> None:
        """Something is wrong from now on, for so long."""
        self.troubled = max(self.troubled, self.now + seconds)

    def forget(self, until: float = 0.0) -> None:
        """A server doesn't know, from now on, what was confirmed before; or what will be ``until`` then."""
        self.forgot = max(self.forgot, self.now, until)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.random.random() < probability

    def run(self, until: float = float("inf"), most: int = 200_000) -> None:
        """Let things happen until ``until``, or until nothing is left to happen."""
        for _ in range(most):
            if not self._events or self._events[0][0] > until:
                break
            self.now, _, event = heapq.heappop(self._events)
            event()
        else:
            raise AssertionError(f"seed {self.seed}: no end after {most} events")
        if until != float("inf"):
            self.now = max(self.now, until)

    def say(self, who: str, what: str) -> None:
        """Write a line of the timeline."""
        self.log.append(f"{self.now:10.4f}  {who:<10} {what}")


class Clock:
    """A clock that runs at a rate of its own."""

    def __init__(self, world: World, rate: float, offset: float) -> None:
        self._world = world
        self._rate = rate
        self._offset = offset

    def __call__(self) -> float:
        return self._offset + self._world.now * self._rate

    def true(self, reading: float) -> float:
        """The true time at which this clock shows ``reading``."""
        return (reading - self._offset) / self._rate
