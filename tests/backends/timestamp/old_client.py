"""A client of the old protocol as documented: SETNX with the end of the lease, GET, GETSET, DEL.

It stops before each command, so that a test decides which client sends the next one:

old = OldClient(redis, "stock")
steps = old.up_to("GETSET")        # SETNX and GET are sent, GETSET is next
...                                # commands of other clients
assert old.finish(steps)           # sends the rest, and returns whether the client believes to hold the lock
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

UNITS = {"s": 1, "ms": 1000}


class OldClient:
    """A client of the old protocol. `read` turns a value into a number, and `clock` is the clock of its machine."""

    def __init__(
        self,
        redis: Any,
        key: str,
        *,
        unit: str = "s",
        ttl: float = 10,
        read: Callable[[Any], float] = int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.redis, self.key, self.ttl, self.read, self.clock = redis, key, ttl, read, clock
        self.unit = UNITS[unit]
        self.mine = 0
        self.holds = False

    def now(self) -> int:
        return int(self.clock() * self.unit)

    def stamp(self) -> int:
        self.mine = int((self.clock() + self.ttl) * self.unit) + 1
        return self.mine

    def is_past(self, value: Any) -> bool:
        return self.read(value) < self.now()

    def taking(self) -> Iterator[str]:
        """Try once to acquire, and yield each command before it is sent."""
        while True:
            yield "SETNX"
            self.holds = bool(self.redis.setnx(self.key, self.stamp()))
            if self.holds:
                return
            yield "GET"
            seen = self.redis.get(self.key)
            if seen is not None:
                break
        if self.is_past(seen):
            yield from self.replacing()

    def replacing(self) -> Iterator[str]:
        """Send the commands that follow when an expired value was found."""
        yield "GETSET"
        former = self.redis.getset(self.key, self.stamp())
        self.holds = former is None or self.is_past(former)

    def up_to(self, command: str) -> Iterator[str]:
        """Begin an attempt, and stop before `command`."""
        steps = self.taking()
        assert command in steps, f"it never sent {command}"
        return steps

    def finish(self, steps: Iterator[str]) -> bool:
        """Send the remaining commands, and return whether the client believes to hold the lock."""
        for _ in steps:
            pass
        return self.holds

    def take(self) -> bool:
        """Try once to acquire, without stops."""
        return self.finish(self.taking())

    def release(self) -> None:
        """Release the lock if it has not expired by the client's own clock."""
        self.holds = False
        if self.mine >= self.now():
            self.redis.delete(self.key)


class OlderClient(OldClient):
    """The protocol before GETSET: a client that finds an expired value deletes it, and tries SETNX."""

    def replacing(self) -> Iterator[str]:
        yield "DEL"
        self.redis.delete(self.key)
        yield "SETNX"
        self.holds = bool(self.redis.setnx(self.key, self.stamp()))
