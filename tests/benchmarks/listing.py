"""Listing 20,000 locks among 200,000 other keys, and 100,000 locks among 2,000,000."""

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
MANY_LOCKS, MANY_OTHERS = 100_000, 2_000_000
LIMIT, MAX_KEYS = 1000, 20_000  # what one page of the admin asks for
STEP = 10_000  # keys
# ARGV 1 first number  2 how many  3 a lock beside each so many  4 owner
FILL = """
for number = ARGV[1], ARGV[1] + ARGV[2] - 1 do
  redis.call('SET', 'session:' .. number, string.rep('x', 50))
  if number % ARGV[3] == 0 then
    redis.call('SET', 'redlock:{' .. number .. '}', string.format('%032x ', number) .. ARGV[4], 'PX', 3600000)
  end
end
"""


def fill(client: redis.Redis, locks: int = LOCKS, others: int = OTHERS) -> None:
    """Write locks, and keys of other programs."""
    for first in range(0, others, STEP):
        client.eval(FILL, 0, first, STEP, others // locks, describe_owner(ttl=3600))


def by_hand(client: redis.Redis) -> Callable[[], None]:
    """SCAN COUNT 1000 until there are 100 locks, then one pipeline for value, remaining time and waiters."""

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
    """A worker: another client that reports its slowest request each time it is told to."""
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


def listing_full() -> Iterator[Row]:
    """A page of the admin with 100,000 locks among 2,000,000 other keys, by the work of Redis and of this process."""
    with RedisServer() as server, server.client() as client:
        fill(client, MANY_LOCKS, MANY_OTHERS)
        backend = RedisBackend(server.url, node_timeout=5)
        backend.held(limit=1)  # loads the scripts
        client.config_set("slowlog-log-slower-than", 0)
        client.config_set("slowlog-max-len", 100_000)
        seen = backend.listing("*", LIMIT, MAX_KEYS)
        pages = [_work(client, lambda: backend.listing("*", LIMIT, MAX_KEYS)) for _ in range(LOOKS)]
        ours, theirs, longest = map(min, zip(*pages, strict=True))
        note = f"Redis: {theirs:.0f} ms; {len(seen.locks):,} locks among {seen.scanned:,} keys, of {client.dbsize():,}"
        yield Row("a page of the admin: work of both", ours + theirs, 200, "ms", note=note)
        yield Row("its longest command in Redis", longest, 5, "ms")


def _work(client: redis.Redis, look: Callable[[], Any]) -> tuple[float, float, float]:
    """Milliseconds of CPU time of this process and of Redis, and of its longest command, which may be interrupted."""
    client.slowlog_reset()
    redis_before, start = _used(client), time.process_time()
    look()
    ours, theirs = time.process_time() - start, _used(client) - redis_before
    return ours * 1000, theirs * 1000, max(call["duration"] / 1000 for call in client.slowlog_get(100_000))


def _used(client: redis.Redis) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def _pages(backend: RedisBackend) -> None:
    for _ in range(20):
        backend.held(limit=PAGE)


def _worst(worker: Worker, look: Callable[[], Any]) -> float:
    worker.tell("go", on=True)
    look()
    worker.tell("stop")
    seconds: float = worker.expect("worst", 30)["seconds"]
    return seconds
