"""Virtual time, and its events in an order that the seed determines."""

import itertools
import random
import sys
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

END = sys.maxsize  # number of an event that comes after all others at the same time


class World:
    """The time, the random numbers, and the timeline of a run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now = 0.0
        self.troubled = 0.0  # time until which the effects of past faults last
        self.forgot = -1.0  # time of the last loss of data on a server
        self.log: list[tuple[float, str, str]] = []
        self.flows: list[Any] = []  # all flows, kept alive so that garbage collection closes none at random
        self.running: object = None  # owner of the running flow
        self._events: list[tuple[float, int, Callable[..., Any] | None, tuple[Any, ...]]] = []
        self.draw = self.random.random
        self._numbers = itertools.count()  # events at the same time happen in the order of their planning

    def at(self, when: float, event: Callable[..., Any], *args: Any) -> None:
        """Run ``event`` at the time ``when``, which must not be in the past."""
        heappush(self._events, (when, next(self._numbers), event, args))

    def after(self, delay: float, event: Callable[..., Any], *args: Any) -> None:
        heappush(self._events, (self.now + delay, next(self._numbers), event, args))

    def trouble(self, seconds: float) -> None:
        """Mark the next ``seconds`` as affected by a fault."""
        self.troubled = max(self.troubled, self.now + seconds)

    def forget(self, until: float = 0.0) -> None:
        """Mark confirmations up to now, or up to ``until`` if that is later, as lost by a server."""
        self.forgot = max(self.forgot, self.now, until)

    def chance(self, probability: float) -> bool:
        return self.draw() < probability

    def run(self, until: float, most: int = 200_000) -> None:
        """Run all events until the time ``until``."""
        events = self._events
        heappush(events, (until, END, None, ()))
        for _ in range(most):
            self.now, _, event, args = heappop(events)
            if event is None:
                return
            event(*args)
        raise AssertionError(f"seed {self.seed}: no end after {most} events")

    def say(self, who: str, what: str) -> None:
        self.log.append((self.now, who, what))

    def timeline(self) -> str:
        return "\n".join(f"{when:10.4f}  {who:<10} {what}" for when, who, what in self.log)


class Clock:
    def __init__(self, world: World, rate: float, offset: float) -> None:
        self._world = world
        self._rate = rate
        self._offset = offset

    def __call__(self) -> float:
        return self._offset + self._world.now * self._rate

    def micros(self) -> int:
        return int((self._offset + self._world.now * self._rate) * 1e6)

    def true(self, reading: float) -> float:
        """Returns the true time at which this clock shows ``reading``."""
        return (reading - self._offset) / self._rate
