"""Virtual time, and everything that happens in it in a seeded order."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

END = sys.maxsize  # the number of what comes behind all else at the same time


class World:
    """Time, chance, and the record of what happened."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.troubled = 0.0  # until when what has gone wrong so far lasts
        self.forgot = -1.0  # when a server has last forgotten something
        self.log: list[tuple[float, str, str]] = []
        self.flows: list[Any] = []  # all that were begun: none may be closed by chance, when somebody forgets it
        self.running: object = None  # whose flow it is that runs now
        self._events: list[tuple[float, int, Callable[..., Any] | None, tuple[Any, ...]]] = []
        self.draw = self.random.random
        self._numbers = itertools.count()  # what is to happen at the same time happens in the order of its planning

    def at(self, when: float, event: Callable[..., Any], *args: Any) -> None:
        """Have ``event`` happen at ``when``, which is not over yet."""
        heappush(self._events, (when, next(self._numbers), event, args))

    def after(self, delay: float, event: Callable[..., Any], *args: Any) -> None:
        """Have ``event`` happen in ``delay`` seconds."""
        heappush(self._events, (self.now + delay, next(self._numbers), event, args))

    def trouble(self, seconds: float) -> None:
        """Something is wrong from now on, for so long."""
        self.troubled = max(self.troubled, self.now + seconds)

    def forget(self, until: float = 0.0) -> None:
        """A server doesn't know, from now on, what was confirmed before; or what will be ``until`` then."""
        self.forgot = max(self.forgot, self.now, until)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.draw() < probability

    def run(self, until: float, most: int = 200_000) -> None:
        """Let happen what is to happen until ``until``."""
        events = self._events
        heappush(events, (until, END, None, ()))
        for _ in range(most):
            self.now, _, event, args = heappop(events)
            if event is None:
                return
            event(*args)
        raise AssertionError(f"seed {self.seed}: no end after {most} events")

    def say(self, who: str, what: str) -> None:
        """Write a line of the timeline."""
        self.log.append((self.now, who, what))

    def timeline(self) -> str:
        """All that was said."""
        return "\n".join(f"{when:10.4f}  {who:<10} {what}" for when, who, what in self.log)


class Clock:
    """A clock that runs at a rate of its own."""

    def __init__(self, world: World, rate: float, offset: float) -> None:
        self._world = world
        self._rate = rate
        self._offset = offset

    def __call__(self) -> float:
        return self._offset + self._world.now * self._rate

    def micros(self) -> int:
        """What a server with this clock gives as its time, in µs."""
        return int((self._offset + self._world.now * self._rate) * 1e6)

    def true(self, reading: float) -> float:
        """The true time at which this clock shows ``reading``."""
        return (reading - self._offset) / self._rate
