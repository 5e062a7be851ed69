"""The cost of a protected task compared with a plain one: CPU of sender and worker, requests, threads.

Run it with ``make bench ONLY=celery``. A sender and a worker with the solo pool on a real Redis broker, the lock store
on another Redis, rounds interleaved, the median of the ratios; celery-once and celery-singleton beside it where they
are installed.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from testproject.processes import Child, wait_until
from testproject.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[2]
TASKS_A_ROUND = 100
ROUNDS = 24
QUEUING = "until_executed", "until_executing", "until_and_while_executing"
LIMITS = {"while_executing": 1.15, **dict.fromkeys(QUEUING, 1.25)}
TRIPS = {"while_executing": 2, **dict.fromkeys(QUEUING, 3)}


class Cost(NamedTuple):
    """The cost of one task: microseconds of CPU, and requests to the lock store."""

    submit: float
    execute: float
    requests: float

    @property
    def cpu(self) -> float:
        """Return the CPU time of both sides."""
        return self.submit + self.execute


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU that all threads of a process have used."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def threads_of(pid: int) -> int:
    """Return how many threads a process has."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


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
        submit = time.process_time() - sent
    finally:
        os.kill(worker, signal.SIGCONT)
    mark.delay().get(timeout=60)
    return Cost(
        submit / len(numbers) * 1e6,
        (cpu_of(worker) - ran) / len(numbers) * 1e6,
        (asked(store) - before) / len(numbers),
    )


def main() -> int:
    """Print the table. Returns 1 when a limit is exceeded."""
    with RedisServer() as broker, RedisServer() as locks, tempfile.TemporaryDirectory() as folder:
        os.environ |= {"CELERY_BROKER": broker.url, "TESTPROJECT_REDIS": locks.url}
        command = [sys.executable, "-m", "celery", "-A", "tests.benchmarks.celery_app", "worker", "-P", "solo"]
        command += ["-l", "WARNING", "--without-mingle", "--without-gossip", "--without-heartbeat"]
        child = Child(command, output=Path(folder, "log"), env={"PYTHONPATH": str(ROOT)})
        try:
            from tests.benchmarks.celery_app import TASKS, mark

            mark_sent = mark.delay()
            wait_until(mark_sent.ready, child=child, timeout=30, what="the worker")
            rounds: dict[str, list[Cost]] = {name: [] for name in TASKS}
            with locks.client() as store:
                for number in range(ROUNDS + 1):
                    for name, task in TASKS.items():
                        numbers = range(number * TASKS_A_ROUND, (number + 1) * TASKS_A_ROUND)
                        cost = measure(task, mark, child.pid, store, numbers)
                        if number:  # the first round warms up
                            rounds[name].append(cost)
                connections = store.info("clients")["connected_clients"] - 1
            threads = threads_of(child.pid)
        finally:
            child.kill()
    return report(rounds, connections, threads)


def report(rounds: dict[str, list[Cost]], connections: int, threads: int) -> int:
    """Print the results. Returns 1 when a limit is exceeded."""
    failed = 0
    print(f"{'task':<27}{'submit µs':>10}{'execute µs':>11}{'x plain':>9}{'requests':>9}")
    for name, costs in rounds.items():
        ratio = statistics.median(cost.cpu / plain.cpu for cost, plain in zip(costs, rounds["plain"], strict=True))
        submit = statistics.median(cost.submit for cost in costs)
        execute = statistics.median(cost.execute for cost in costs)
        requests = statistics.median(cost.requests for cost in costs)
        limit = LIMITS.get(name, float("inf"))
        verdict = "" if limit == float("inf") else f"  (at most {limit}, {TRIPS[name]})"
        failed |= ratio > limit or requests > TRIPS.get(name, float("inf"))
        print(f"{name:<27}{submit:>10.0f}{execute:>11.0f}{ratio:>9.2f}{requests:>9.2f}{verdict}")
    print(f"connections to the lock store: {connections}; threads of the worker: {threads}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
