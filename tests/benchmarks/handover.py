"""Hand-overs: from a release in one process to the acquire in the next, and 200 threads that want one lock."""

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import redis
import redis_lock

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Results, Row, jain, one_core, turns
from tests.support.processes import Channel, Worker

ROUNDS, SECONDS, TIMEOUT = 15, 0.3, 60.0
CROWD_PROCESSES, CROWD_THREADS = 4, 50
OURS, PEER, BASE = "ours", "python-redis-lock", "BLPOP ping-pong with redis-py"
SENT = ("blpop", "eval", "evalsha", "ping")  # by our clients; what a script calls has other names
TOKEN = "bench:token"
# Seconds: long enough for the others to be waiting when it is passed on. On one core the scheduler decides who runs
# first, the woken or the releasing one, and so what p50 comes to: many short rounds, and no rhythm that it could keep.
HOLD = 0.0003

Stamps = list[tuple[int, int]]  # ns of the monotonic clock: acquired, and about to release


class Round(NamedTuple):
    """The result of one round of one side. ``p50`` in seconds. ``commands``: those that clients send a hand-over."""

    p50: float
    rate: float
    jain: float
    commands: float


def contend(channel: Channel, port: int, threads: int, hold: float) -> None:
    """A worker: its threads take part in every round."""
    client, backend = redis.Redis("127.0.0.1", port), RedisBackend(f"redis://127.0.0.1:{port}/0", node_timeout=5)
    backend.lock("bench").locked()  # connect, so that the first round begins alike for all
    sides: dict[str, Callable[[float, Stamps], None]] = {
        OURS: lambda end, stamps: _locking(lambda: backend.lock("bench"), end, hold, stamps),
        PEER: lambda end, stamps: _locking(lambda: redis_lock.Lock(client, "bench:prl", expire=30), end, hold, stamps),
        BASE: lambda end, stamps: _passing(client, end, hold, stamps),
    }
    channel.say("ready")
    while (told := channel.hear("go", TIMEOUT))["side"]:
        shares: list[Stamps] = [[] for _ in range(threads)]
        end = time.monotonic() + told["seconds"]
        working = [threading.Thread(target=sides[told["side"]], args=(end, share)) for share in shares]
        for thread in working:
            thread.start()
        for thread in working:
            thread.join()
        channel.say("done", shares=shares)


def _locking(made: Callable[[], Any], end: float, hold: float, stamps: Stamps) -> None:
    while time.monotonic() < end:
        lock = made()
        lock.acquire()
        stamps.append(_held(hold))
        lock.release()


def _passing(client: redis.Redis, end: float, hold: float, stamps: Stamps) -> None:
    """Take the turn by popping a token. After the end each process gets the token once more, and ends."""
    over = False
    while not over:
        client.blpop([TOKEN])
        stamps.append(_held(hold))
        over = time.monotonic() >= end
        client.rpush(TOKEN, "1")


def _held(hold: float) -> tuple[int, int]:
    got = time.monotonic_ns()
    if hold:
        time.sleep(hold * random.uniform(0.5, 1.5))
    return got, time.monotonic_ns()


def _measured(side: str, workers: Sequence[Worker], client: redis.Redis, seconds: float) -> Round:
    client.delete(TOKEN)
    before = _commands(client)
    for worker in workers:
        worker.tell("go", side=side, seconds=seconds)
    if side == BASE:
        client.rpush(TOKEN, "1")
    shares = [share for worker in workers for share in worker.expect("done", TIMEOUT)["shares"]]
    sent = _commands(client) - before
    turns = sorted((*stamp, who) for who, stamps in enumerate(shares) for stamp in stamps)
    gaps = [after[0] - turn[1] for turn, after in pairwise(turns) if turn[2] != after[2]]
    if any(gap < 0 for gap in gaps):
        raise AssertionError("two had it at once")
    length, count = (turns[-1][1] - turns[0][0]) / 1e9, len(turns)
    return Round(
        statistics.median(gaps) / 1e9,
        len(gaps) / length,
        jain(map(len, shares)),
        sent / count,
    )


def _commands(client: redis.Redis) -> int:
    """Return how many commands clients have sent."""
    stats: dict[str, Any] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in SENT)


def _contest(sides: Sequence[str], processes: int, threads: int, hold: float, rounds: int, seconds: float) -> Results:
    results = Results({side: [] for side in sides})
    with RedisServer() as server, server.client() as client, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(contend, server.port, threads, hold)) for _ in range(processes)]
        for worker in workers:
            worker.expect("ready", TIMEOUT)
        for number, side in turns(results, rounds):
            outcome = _measured(side, workers, client, seconds)
            results[side] += [outcome] if number else []  # the first is for warming up
        for worker in workers:
            worker.tell("go", side="")
            worker.result()
    return results


def handover() -> Iterator[Row]:
    """Hand-over with 1 and with 32 waiting processes: time, fairness, commands."""
    for waiting in (1, 32):
        with one_core():
            results = _contest((OURS, BASE, PEER), waiting + 1, 1, HOLD, ROUNDS, SECONDS)
        for side in (OURS, PEER):
            yield results.row(f"p50, {waiting} waiting, ", side, BASE, "p50", 1.6 if side == OURS else None)
        yield Row(f"Jain's index, {waiting} waiting", results.median(OURS, "jain"), 0.99, "", least=True)
        yield Row(f"client commands a hand-over, {waiting} waiting", results.median(OURS, "commands"), 4, "")


def crowd() -> Iterator[Row]:
    """200 threads in 4 processes: commands that clients send for each hand-over, hand-overs a second."""
    results = _contest((OURS, PEER), CROWD_PROCESSES, CROWD_THREADS, 0.0, 3, 1.5)
    rate = results.row("hand-overs a second, ", OURS, PEER, "rate", 2.5, unit="a second")
    yield Row("client commands a hand-over", results.median(OURS, "commands"), 2, "")
    yield rate._replace(least=True)
    yield Row("Jain's index over the threads", results.median(OURS, "jain"), unit="")
