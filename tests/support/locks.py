"""Locks and the servers that they are on, as many tests use them."""

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

from django_redlock.core.background.work import background
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.shared_handles import MAKE
from testproject.redis_server import RedisServer
from tests.support.service import poll


def entry_of(backend: str, location: Any = "", **options: Any) -> dict[str, Any]:
    """Return an entry of REDLOCK for a backend of this package, such as `redlock.RedlockBackend`."""
    return {"BACKEND": f"django_redlock.backends.{backend}", "LOCATION": location, "OPTIONS": options}


def redis_entry(location: str, **options: Any) -> dict[str, Any]:
    """Return an entry of REDLOCK for one Redis, which may take its time: the machine may be busy."""
    return entry_of("redis.RedisBackend", location, **{"node_timeout": 5, **options})


def memory_entry(location: str = "") -> dict[str, Any]:
    return entry_of("locmem.LocMemBackend", location)


# Seconds: as short as a machine can stand on which everything takes ten times as long as it should.
SHORT = {"ttl": 4, "max_ttl": 4, "node_timeout": 2}
ONE_HOLDER = {"semaphore": {"limit": 1}, "striped": {"stripes": 1}}


def new_lock(kind: str, backend: Any, name: str, **options: Any) -> Any:
    """Return a lock of that kind, one of `MAKE` or "read", with one holder at a time unless options say otherwise."""
    if kind == "read":
        return backend.rwlock(name, **options).read
    return MAKE[kind](backend, name, **{**ONE_HOLDER.get(kind, {}), **options})


class AdvancedClock:
    """A clock that runs like the monotonic clock, `ahead` seconds fast."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


def acquired(lock: Any) -> bool:
    """Return whether the store replies and grants the lock."""
    try:
        return bool(lock.acquire(blocking=False))
    except LockUnavailable:
        return False


def granted(client: Any, name: str = "stock") -> bool:
    lock = client.lock(name)
    if taken := acquired(lock):
        lock.release()
    return taken


def connected(client: Any) -> Any:
    """Return the client of a quorum when it has an open connection to each node."""
    poll(lambda: all(row["ok"] for row in client.backend.health()), timeout=60, what="nodes that are connected")
    return client


def held_by_all(lock: Any, holding: Callable[[], bool]) -> None:
    """Acquire the lock on all nodes, as ``holding()`` says. A node that is not connected yet does not vote later."""

    def acquired() -> bool:
        with contextlib.suppress(LockUnavailable):
            assert lock.acquire(timeout=20)
            with contextlib.suppress(TimeoutError):
                poll(holding, timeout=3, what="all votes")
                return True
            lock.release()
        return False

    poll(acquired, timeout=60, what="all votes")


def held_on(servers: Iterable[RedisServer], key: str = "redlock:{stock}") -> int:
    count = 0
    for server in servers:
        with server.client() as client:
            count += client.exists(key)
    return count


def renew_now(lock: Any) -> None:
    """Let the next renewal of a held lock begin at once."""
    background.schedule(lock.hold, 0.0)


def wait_until_renewed(backend: Any, name: str) -> None:
    """Wait until the store shows more remaining time of the lock than before, as after a renewal."""
    least = backend.describe(name).remaining

    def renewed() -> bool:
        nonlocal least
        remaining = backend.describe(name).remaining
        least = min(least, remaining)
        return bool(remaining > least + 0.5)

    poll(renewed, timeout=30, what=f"a renewal of {name}")


def crash(server: RedisServer) -> None:
    server.kill()
    server.start()


def scripts_run(server: RedisServer) -> int:
    with server.client() as client:
        return sum(stats["calls"] for name, stats in client.info("commandstats").items() if "eval" in name)
