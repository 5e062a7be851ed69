"""200 callers of `get_or_compute` on a cold key, beside the same callers with two requests to the cache each."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator, Sequence

import django
from django.conf import settings
from django.core.cache import cache

from django_redlock.cache import get_or_compute
from testproject.redis_server import RedisServer
from tests.benchmarks.handover import TIMEOUT
from tests.benchmarks.measure import Row
from tests.support.processes import Channel, Worker

PROCESSES, THREADS, ROUNDS = 4, 50, 9
COMPUTATION = 0.5  # seconds; long enough that all callers wait when it ends
COMPUTED, REQUESTS = "get_or_compute", "two requests"


def call(channel: Channel, url: str) -> None:
    """A worker: in each round its threads make one call each, and report the end of the computation and their ends."""
    settings.configure(
        CACHES={
            "default": {
                "BACKEND": "django.core.cache.backends.redis.RedisCache",
                "LOCATION": url,
                "OPTIONS": {"max_connections": THREADS},
            }
        },
        REDLOCK={
            "default": {
                "BACKEND": "django_redlock.backends.redis.RedisBackend",
                "LOCATION": url,
                "OPTIONS": {"node_timeout": 5},
            }
        },
    )
    django.setup()
    channel.say("ready")
    while (told := channel.hear("go", TIMEOUT))["side"]:
        computed: list[float] = []
        ends: list[float] = []
        side = _computed if told["side"] == COMPUTED else _requests
        threads = [
            threading.Thread(target=side, args=(told["key"], told["start"], computed, ends)) for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        channel.say("done", computed=computed, ends=ends)


def _computed(key: str, start: float, computed: list[float], ends: list[float]) -> None:
    def compute() -> str:
        time.sleep(max(0, start - time.monotonic()))
        computed.append(time.monotonic())
        return "value"

    get_or_compute(cache, key, compute, 60)
    ends.append(time.monotonic())


def _requests(key: str, start: float, computed: list[float], ends: list[float]) -> None:
    cache.get(key)  # a caller of `get_or_compute` has looked, too, before it waits
    time.sleep(max(0, start - time.monotonic()))
    computed.append(start)
    for _ in range(2):
        cache.get(key)
    ends.append(time.monotonic())


def _late(side: str, number: int, workers: Sequence[Worker]) -> list[float]:
    """Return how many seconds after the end of the computation each caller had the value."""
    start = time.monotonic() + COMPUTATION
    for worker in workers:
        worker.tell("go", side=side, key=f"{side}:{number}", start=start)
    told = [worker.expect("done", TIMEOUT) for worker in workers]
    computed = {moment for each in told for moment in each["computed"]}
    if len(computed) != 1:
        raise AssertionError(f"{len(computed)} computations")
    return [end - min(computed) for each in told for end in each["ends"]]


def computed_once() -> Iterator[Row]:
    """200 callers of `get_or_compute` in 4 processes on a cold key: p99 from the end of the computation."""
    late: dict[str, list[list[float]]] = {COMPUTED: [], REQUESTS: []}
    with RedisServer() as server, contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(call, server.url)) for _ in range(PROCESSES)]
        for worker in workers:
            worker.expect("ready", TIMEOUT)
        for number in range(ROUNDS + 1):
            for side, measured in late.items():
                outcome = _late(side, number, workers)
                if number:  # the first is for warming up
                    measured.append(outcome)
    for name, point in (("p50", statistics.median), ("p99", _p99)):
        ours, theirs = ([point(each) for each in late[side]] for side in (COMPUTED, REQUESTS))
        ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
        note = f"{statistics.median(ours) * 1e3:.1f} ms, {statistics.median(theirs) * 1e3:.1f} ms"
        yield Row(
            f"{name} after the computation / two requests of each caller",
            ratio,
            1 if name == "p99" else None,
            note=note,
        )


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]
