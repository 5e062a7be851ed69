"""Tries that don't wait, for locks that another client holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import redis

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, Spent, one_core, spent, spent_ratio

NAMES, CALLS, ROUNDS = 5000, 500, 20
BASE = "SET NX PX with redis-py"


def refusals() -> Iterator[Row]:
    """A refused try without a wait, always for one lock or for 5,000 locks in turn: time, and CPU of the server."""
    with one_core(), RedisServer() as server, server.client() as admin, redis.Redis("127.0.0.1", server.port) as client:
        holder, one, many = (RedisBackend(server.url, ttl=300) for _ in range(3))
        for number in range(NAMES):
            holder.lock(f"refusals:{number}", auto_renew=False).acquire()
        client.set("refusals:hand", "x")
        numbers = itertools.cycle(range(NAMES))
        sides: dict[str, Callable[[], object]] = {
            BASE: lambda: client.set("refusals:hand", "y", nx=True, px=30_000),
            "ours, one lock": lambda: one.lock("refusals:0").acquire(blocking=False),
            f"ours, {NAMES:,} locks": lambda: many.lock(f"refusals:{next(numbers)}").acquire(blocking=False),
            "redis-py's Lock": lambda: client.lock("refusals:hand", timeout=30).acquire(blocking=False),
        }
        for name, attempt in sides.items():
            for _ in range(NAMES):
                if attempt():
                    raise AssertionError(f"{name} was granted a lock that is held")
        results: dict[str, list[Spent]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, attempt in sides.items():
                results[name].append(spent(attempt, CALLS, [admin]))
        for backend in (holder, one, many):
            backend.close()
    for field, what in (("clock", "a refused try"), ("server", "server CPU a refused try")):
        for name in list(sides)[1:]:
            ratio, note = spent_ratio(results, name, BASE, field)
            yield Row(f"{what}, {name} / {BASE}", ratio, note=note)
