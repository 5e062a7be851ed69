"""The first 100 of 20,000 locks among 200,000 other keys."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.owner import describe_owner
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, interleaved, one_core
from tests.support.processes import Channel, Worker

LOCKS, OTHERS, PAGE, LOOKS = 20_000, 200_000, 100, 9


def fill(client: redis.Redis) -> None:
    """Locks as we write them, and keys of others."""
    with client.pipeline(transaction=False) as pipe:
        for number in range(OTHERS):
            pipe.set(f"session:{number}", "x" * 50)
            if number % (OTHERS // LOCKS) == 0:
                pipe.set(f"redlock:{{{number}}}", b"%032x " % number + describe_owner(), px=600_000)
            if number % 10_000 == 0:
                pipe.execute()
        pipe.execute()


def by_hand(client: redis.Redis) -> Callable[[], None]:
    """SCAN COUNT 1000 until there are 100 locks, then one pipeline for value, time left and waiters."""

    def look() -> None:
        cursor, keys = 0, list[Any]()
        while len(keys) < PAGE:
            cursor, found = client.scan(cursor, match="redlock:{*}", count=1000)
            keys += found
            if cursor == 0:
                break
        with client.pipeline(transaction=False) as pipe:
            for key in keys[:PAGE]:
                pipe.get(key).pttl(key).zcard(key + b":waiters")
            pipe.execute()

    return look


def ping(channel: Channel, port: int) -> None:
    """A worker: another client, that says how long its slowest request took, each time it is asked."""
    client = redis.Redis("127.0.0.1", port)
    channel.say("ready")
    while channel.hear("go", 60)["on"]:
        worst = 0.0
        while not channel.connection.poll():
            start = time.perf_counter()
            client.ping()
            worst = max(worst, time.perf_counter() - start)
        channel.say("worst", seconds=worst)


def listing() -> Iterator[Row]:
    """The first 100 of 20,000 locks among 200,000 other keys: time, and what other clients notice."""
    with one_core(), RedisServer() as server, server.client() as client:
        fill(client)
        backend = RedisBackend(server.url)
        if len(backend.held(limit=PAGE)) != PAGE or len(backend.held()) != LOCKS:
            raise AssertionError("the listing is not what it should be")
        ours, base = "held(limit=100)", "SCAN COUNT 1000 and a pipeline"
        rounds = interleaved({base: by_hand(client), ours: lambda: backend.held(limit=PAGE)}, rounds=30, calls=10)
        yield from rounds.rows(base, {ours: 1.3})
    with RedisServer() as server, server.client() as client, Worker(ping, server.port) as worker:
        fill(client)
        backend = RedisBackend(server.url)
        worker.expect("ready", 30)
        # The machine stalls clients too: the median of the worst of several looks, and with nobody looking beside it.
        idle = statistics.median(_worst(worker, lambda: time.sleep(0.2)) for _ in range(LOOKS))
        page = statistics.median(_worst(worker, lambda: _pages(backend)) for _ in range(LOOKS))
        every = statistics.median(_worst(worker, backend.held) for _ in range(LOOKS))
        worker.tell("go", on=False)
        note = f"nobody looking: {idle * 1e3:.1f} ms"
        yield Row("worst stall of another client, first 100", page * 1e3, 5, "ms", note=note)
        yield Row("worst stall of another client, all 20,000", every * 1e3, 5, "ms", note=note)


def _pages(backend: RedisBackend) -> None:
    for _ in range(20):
        backend.held(limit=PAGE)


def _worst(worker: Worker, look: Callable[[], Any]) -> float:
    worker.tell("go", on=True)
    look()
    worker.tell("stop")
    seconds: float = worker.expect("worst", 30)["seconds"]
    return seconds
