"""The cost of a protected task compared with a plain one: CPU of sender and worker, requests."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from testproject.processes import Child, wait_until
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Results, Row

ROOT = Path(__file__).resolve().parents[2]
TASKS_A_ROUND = 100
ROUNDS = 24
QUEUING = "until_executed", "until_executing", "until_and_while_executing"
LIMITS = {"while_executing": 1.15, **dict.fromkeys(QUEUING, 1.25)}
TRIPS = {"while_executing": 2, **dict.fromkeys(QUEUING, 3)}


class Cost(NamedTuple):
    """The cost of one task: seconds of CPU of both sides together and of each, and requests to the lock store."""

    cpu: float
    submit: float
    execute: float
    requests: float


def cpu_of(pid: int) -> float:
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def asked(store: Any) -> int:
    """Return the number of requests to the lock store, without commands of scripts and without this request."""
    return int(store.info("stats")["total_reads_processed"]) - next(_asking)


_asking = count(1)


def measure(task: Any, mark: Any, worker: int, store: Any, numbers: range) -> Cost:
    """Send these calls, and then run them: at the same time each would disturb the other's caches."""
    before, sent, ran = asked(store), time.process_time(), cpu_of(worker)
    os.kill(worker, signal.SIGSTOP)
    try:
        for number in numbers:
            task.delay(number)
        submit = (time.process_time() - sent) / len(numbers)
    finally:
        os.kill(worker, signal.SIGCONT)
    mark.delay().get(timeout=60)
    execute = (cpu_of(worker) - ran) / len(numbers)
    return Cost(submit + execute, submit, execute, (asked(store) - before) / len(numbers))


def celery() -> Iterator[Row]:
    """A sender and a worker with the solo pool, each mode beside a plain task, celery-once and celery-singleton."""
    with RedisServer() as broker, RedisServer() as locks, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CELERY_BROKER": broker.url, "TESTPROJECT_REDIS": locks.url}
        command = [sys.executable, "-m", "celery", "-A", "tests.benchmarks.celery_app", "worker", "-P", "solo"]
        command += ["-l", "WARNING", "--without-mingle", "--without-gossip", "--without-heartbeat"]
        child = Child(command, output=Path(folder, "log"), env={"PYTHONPATH": str(ROOT)})
        try:
            from tests.benchmarks.celery_app import TASKS, mark

            mark_sent = mark.delay()
            wait_until(mark_sent.ready, child=child, timeout=30, what="the worker")
            results = Results({name: [] for name in TASKS})
            with locks.client() as store:
                for number in range(ROUNDS + 1):
                    for name, task in TASKS.items():
                        numbers = range(number * TASKS_A_ROUND, (number + 1) * TASKS_A_ROUND)
                        cost = measure(task, mark, child.pid, store, numbers)
                        results[name] += [cost] if number else []  # the first round warms up
        finally:
            child.kill()
    for name in results:
        submit, execute = (results.median(name, field) * 1e6 for field in ("submit", "execute"))
        ratio = results.ratio(name, "plain", "cpu")
        yield Row(
            f"CPU, {name} / plain", ratio, LIMITS.get(name), note=f"submit {submit:.0f} µs, execute {execute:.0f}"
        )
        yield Row(f"requests to the lock store, {name}", results.median(name, "requests"), TRIPS.get(name), "")
