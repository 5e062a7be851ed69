"""Many threads of a few processes that compete for one lock."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import redis
import redis_lock

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.handover import TIMEOUT, Round, Stamps, sent
from tests.benchmarks.measure import Row, jain
from tests.support.processes import Channel, Worker

PROCESSES, THREADS, ROUNDS, SECONDS = 4, 50, 3, 1.5
OURS, ALONE, PEER = "ours", "ours, cohort=0", "python-redis-lock"


def contend(channel: Channel, port: int) -> None:
    """A worker: its threads take part in every round."""
    client, url = redis.Redis("127.0.0.1", port), f"redis://127.0.0.1:{port}/0"
    backends = {OURS: RedisBackend(url, node_timeout=5), ALONE: RedisBackend(url, node_timeout=5, cohort=0)}
    made: dict[str, Callable[[], Any]] = {
        side: lambda backend=backend: backend.lock("crowd") for side, backend in backends.items()
    }
    made[PEER] = lambda: redis_lock.Lock(client, "crowd:prl", expire=30)
    channel.say("ready")
    while (told := channel.hear("go", TIMEOUT))["side"]:
        shares: list[Stamps] = [[] for _ in range(THREADS)]
        end = time.monotonic() + told["seconds"]
        threads = [threading.Thread(target=_work, args=(made[told["side"]], end, share)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        channel.say("done", shares=shares)


def _work(make: Callable[[], Any], end: float, stamps: Stamps) -> None:
    while time.monotonic() < end:
        lock = make()
        lock.acquire()
        stamps.append((time.monotonic_ns(), time.monotonic_ns()))
        lock.release()


def _measured(side: str, workers: Sequence[Worker], client: redis.Redis) -> Round:
    before = sent(client)
    for worker in workers:
        worker.tell("go", side=side, seconds=SECONDS)
    shares = [share for worker in workers for share in worker.expect("done", TIMEOUT)["shares"]]
    turns = sorted((*stamp, who) for who, stamps in enumerate(shares) for stamp in stamps)
    gaps = [after[0] - turn[1] for turn, after in pairwise(turns) if turn[2] != after[2]]
    if any(gap < 0 for gap in gaps):
        raise AssertionError("two had it at once")
    length = (turns[-1][1] - turns[0][0]) / 1e9
    commands = (sent(client) - before).total() / len(turns)
    return Round(statistics.median(gaps) / 1e9, len(gaps) / length, jain(map(len, shares)), commands)


def crowd() -> Iterator[Row]:
    """200 threads in 4 processes: Redis commands for each hand-over, hand-overs a second."""
    results: dict[str, list[Round]] = {OURS: [], ALONE: [], PEER: []}
    with RedisServer() as server, server.client() as client, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(contend, server.port)) for _ in range(PROCESSES)]
        for worker in workers:
            worker.expect("ready", TIMEOUT)
        for number in range(ROUNDS + 1):
            for side, measured in results.items():
                outcome = _measured(side, workers, client)
                if number:  # the first is for warming up
                    measured.append(outcome)
        for worker in workers:
            worker.tell("go", side="")
            worker.result()
    rates = {side: statistics.median(each.rate for each in rounds) for side, rounds in results.items()}
    for side, bars in ((OURS, (2, 2.5)), (ALONE, (None, None))):
        rounds, note = results[side], f"{rates[side]:.0f}/s, {rates[PEER]:.0f}/s"
        yield Row(f"client commands a hand-over, {side}", statistics.median(r.commands for r in rounds), bars[0], "")
        ratio = statistics.median(one.rate / other.rate for one, other in zip(rounds, results[PEER], strict=True))
        yield Row(f"hand-overs a second, {side} / {PEER}", ratio, bars[1], least=True, note=note)
    yield Row("Jain's index over the threads, ours", statistics.median(each.jain for each in results[OURS]), unit="")


def tasks() -> Iterator[Row]:
    """Connections of 1,000 tasks of one event loop that wait for 100 names."""
    with RedisServer() as server, server.client() as client:
        before = len(client.client_list())
        waiting, all_ = asyncio.run(_waiting(server.url, lambda: len(client.client_list()) - before))
    yield Row("connections while 1,000 tasks wait for 100 names", waiting, 16, "")
    yield Row("connections when all of them have had their turn", all_, 16, "")


async def _waiting(url: str, connections: Callable[[], int]) -> tuple[int, int]:
    backend, names = RedisBackend(url, node_timeout=5), [f"tasks:{number}" for number in range(100)]
    async with contextlib.AsyncExitStack() as held:
        for name in names:
            await held.enter_async_context(backend.lock(name))
        waiting = [asyncio.create_task(_turn(backend, names[number % 100])) for number in range(1000)]
        while min([(await backend.adescribe(name)).waiters for name in names]) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while_waiting = connections()
    await asyncio.gather(*waiting)
    in_the_end = connections()
    await backend.aclose()
    backend.close()
    return while_waiting, in_the_end


async def _turn(backend: RedisBackend, name: str) -> None:
    async with backend.lock(name):
        pass
