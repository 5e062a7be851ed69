"""Locks and the servers that they are on, as many tests use them."""

from __future__ import annotations

import time
from typing import Any

from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer


class AdvancedClock:
    """A clock that runs like the monotonic clock, `ahead` seconds fast."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def granted(client: Any, name: str = "stock") -> bool:
    """Return whether the lock can be acquired. It is released at once."""
    lock = client.lock(name)
    try:
        taken = lock.acquire(blocking=False)
    except LockUnavailable:
        return False
    if taken:
        lock.release()
    return bool(taken)


def crash(server: RedisServer) -> None:
    """Kill the server with `kill -9`, and start it again with the data on disk."""
    server.kill()
    server.start()


def scripts_run(server: RedisServer) -> int:
    """Return how many scripts the server has run."""
    with server.client() as client:
        return sum(stats["calls"] for name, stats in client.info("commandstats").items() if "eval" in name)
