"""Ten thousand locks, held and renewed by one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row
from tests.support.processes import Channel, Worker

LOCKS, TTL, SECONDS = 10_000, 30, 30.0


def hold(channel: Channel, url: str) -> None:
    """A worker: acquires the locks, holds them, and reports the cost."""
    backend = RedisBackend(url, ttl=TTL)
    locks = [backend.lock(f"many:{number}") for number in range(LOCKS)]
    for lock in locks:
        lock.acquire()
    began, cpu = time.monotonic(), time.process_time()
    time.sleep(SECONDS)
    share = (time.process_time() - cpu) / (time.monotonic() - began)
    threads = threading.active_count() - 1
    channel.say("held", share=share, threads=threads, lost=sum(lock.lost for lock in locks))
    channel.hear("go", 60)


def many() -> Iterator[Row]:
    """10,000 locks held and renewed by one process for 30 s: CPU, threads, losses."""
    with RedisServer() as server, Worker(hold, server.url) as worker, server.client() as client:
        told = worker.expect("held", SECONDS + 60)
        kept = sum(1 for _ in client.scan_iter("*}", count=1000))  # not what renewals tell
        renewals = client.info("commandstats")["cmdstat_pexpire"]["calls"]
        worker.tell("go")
    what = f"{LOCKS} locks, ttl {TTL} s, {SECONDS:g} s"
    yield Row(f"CPU of the process, {what}", told["share"], 0.05, "core", note=f"{renewals} renewals")
    yield Row("threads that renew", told["threads"], 1, "")
    yield Row("locks lost", told["lost"] + LOCKS - kept, 0, "")
