"""How cost grows with held locks, waiters, keys and processes.

CPU time, because other programs on the machine disturb it less than the clock.
"""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Iterator

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.owner import describe_owner
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, server_cpu
from tests.support.processes import Channel, Worker
from tests.support.service import poll

HELD, WAITERS, KEYS = (100, 1_000, 10_000, 100_000), (1, 10, 100, 1_000), (10_000, 100_000, 1_000_000)
PROCESSES = 1, 4, 16, 64
TTL = 30  # seconds; each held lock is renewed once in a third of them
PAIRS, ROUNDS = 500, 5
STEP = 10_000  # keys
# ARGV 1 first number  2 how many  3 owner of the lock beside each tenth
FILL = """
for number = ARGV[1], ARGV[1] + ARGV[2] - 1 do
  redis.call('SET', 'session:' .. number, string.rep('x', 50))
  if number % 10 == 0 then
    redis.call('SET', 'redlock:{' .. number .. '}', string.format('%032x ', number) .. ARGV[3], 'PX', 3600000)
  end
end
"""


def growth() -> Iterator[Row]:
    """Renewals by held locks, hand-overs by waiters, a list by keys, a pair by processes."""
    yield from _renewals()
    yield from _hand_overs()
    yield from _listings()
    yield from _processes()


def _renewals() -> Iterator[Row]:
    for held in HELD:
        with RedisServer() as server, server.client() as admin:
            backend = RedisBackend(server.url, ttl=TTL, history=False)
            empty = admin.info("memory")["used_memory"]
            locks = [backend.lock(f"held:{number}") for number in range(held)]
            for lock in locks:
                lock.acquire()
            size = (admin.info("memory")["used_memory"] - empty) / held
            client, served = time.process_time(), server_cpu(admin)
            time.sleep(TTL / 3)  # each lock is renewed once
            client, served = time.process_time() - client, server_cpu(admin) - served
            lost = sum(lock.lost for lock in locks)
            backend.close()
        note = f"server {served / held * 1e6:.1f} µs, {size:.0f} bytes each, {lost} lost"
        yield Row(f"client CPU of a renewal, {held:,} held", client / held * 1e6, unit="µs", note=note)


def _hand_overs() -> Iterator[Row]:
    for waiters in WAITERS:
        with RedisServer() as server, server.client() as admin:
            cpu, each = asyncio.run(_handed_on(server, admin, waiters))
        yield Row(f"server CPU of a hand-over, {waiters:,} waiting", cpu, unit="µs", note=f"{each:.0f} µs by the clock")


async def _handed_on(server: RedisServer, admin: object, waiters: int) -> tuple[float, float]:
    """Return the server's CPU and the time of a hand-over, in µs. Each waiter has a backend, as in its own process."""
    backends = [RedisBackend(server.url, node_timeout=5, history=False) for _ in range(waiters + 1)]
    first = backends[0].lock("one")
    await first.aacquire()

    async def take(backend: RedisBackend) -> None:
        async with backend.lock("one"):
            pass

    tasks = [asyncio.create_task(take(backend)) for backend in backends[1:]]

    def all_listed() -> bool:
        held = backends[0].describe("one")
        return held is not None and held.waiters == waiters

    await asyncio.to_thread(poll, all_listed, timeout=60, what="the waiters in the store")
    clock, served = time.perf_counter(), server_cpu(admin)
    await first.arelease()
    await asyncio.gather(*tasks)
    clock, served = time.perf_counter() - clock, server_cpu(admin) - served
    for backend in backends:
        await backend.aclose()
        backend.close()
    return served / waiters * 1e6, clock / waiters * 1e6


def _listings() -> Iterator[Row]:
    for keys in KEYS:
        with RedisServer() as server, server.client() as admin:
            for first in range(0, keys, STEP):
                admin.eval(FILL, 0, first, STEP, describe_owner(ttl=3600))
            backend = RedisBackend(server.url, history=False, node_timeout=5)
            seen = []
            for _ in range(ROUNDS):
                client, served = time.process_time(), server_cpu(admin)
                backend.held(limit=100)
                seen.append((time.process_time() - client + server_cpu(admin) - served) * 1e3)
            backend.close()
        yield Row(f"CPU of a list of 100 locks, {keys:,} keys", statistics.median(seen), unit="ms")


def work(channel: Channel, url: str, number: int) -> None:
    """A worker: acquires and releases a lock of its own."""
    backend = RedisBackend(url, history=False, node_timeout=5)
    backend.lock("warm").locked()
    channel.say("ready")
    channel.hear("go", 60)
    for _ in range(PAIRS):
        with backend.lock(f"own:{number}"):
            pass
    channel.say("done")


def _processes() -> Iterator[Row]:
    for processes in PROCESSES:
        with RedisServer() as server, server.client() as admin, contextlib.ExitStack() as stack:
            workers = [stack.enter_context(Worker(work, server.url, number)) for number in range(processes)]
            for worker in workers:
                worker.expect("ready", 120)
            served = server_cpu(admin)
            for worker in workers:
                worker.tell("go")
            for worker in workers:
                worker.expect("done", 120)
            served = (server_cpu(admin) - served) / (PAIRS * processes)
        yield Row(f"server CPU of a pair, {processes} processes", served * 1e6, unit="µs")
