"""A load test with many clients that buy the same product. Each order holds one lock.

It compares three ways to lock: ``SET NX PX`` retried without a pause, ``SET NX PX`` retried with a pause, and this
package. An order reads the stock, works for a moment, and writes the stock. The stock is in memory that the processes
share, so Redis gets requests for the lock only. The release is timed separately, because the holder's DEL waits in the
same queue as the retries of the other clients.
"""

from __future__ import annotations

import multiprocessing
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import redis
from rich.table import Table

from django_redlock.backends.redis import RedisBackend
from testproject.demo.report import bars, console, progress

CLIENTS = 100
PROCESSES = 4
WORK = 0.001  # seconds that an order takes between reading and writing the stock
PAUSE = 0.010  # seconds between two tries
TTL = 30
START = 60.0  # seconds that the processes may take to start
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

# Acquires the lock and returns the function that releases it.
Acquire = Callable[[], Callable[[], object]]


def by_hand(url: str, pause: float) -> Acquire:
    """Lock with ``SET NX PX`` until it succeeds, with `pause` seconds between tries.

    A script compares the token and deletes.
    """
    client = redis.Redis.from_url(url)
    release = client.register_script(RELEASE)

    def acquire() -> Callable[[], object]:
        token = secrets.token_hex(16)
        while not client.set("load:lock", token, nx=True, px=TTL * 1000):
            if pause:
                time.sleep(pause)
        return lambda: release(keys=["load:lock"], args=[token])

    return acquire


def by_package(url: str) -> Callable[[], Acquire]:
    """Lock with this package. Returns a factory of clients, which share one backend, as in a project."""
    backend = RedisBackend(url, ttl=TTL, node_timeout=10)

    def client() -> Acquire:
        def acquire() -> Callable[[], object]:
            lock = backend.lock("load")
            lock.acquire()
            return lock.release

        return acquire

    return client


BY_HAND, PACKAGE = "SET NX, no pause", "this package"
WAYS: dict[str, Callable[[str], Callable[[], Acquire]]] = {
    BY_HAND: lambda url: lambda: by_hand(url, 0),
    "SET NX, 10 ms pause": lambda url: lambda: by_hand(url, PAUSE),
    PACKAGE: by_package,
}
COMMANDS = ("set", "evalsha"), ("eval", "evalsha", "blpop", "ping")  # by hand, by this package


@dataclass(frozen=True)
class Load:
    """The measurements of one way to lock. Times are seconds."""

    way: str
    elapsed: float
    releases: list[float]  # sorted
    commands: int  # commands that clients sent to Redis
    left: int  # remaining stock: 0 if no two clients held the lock at once

    @property
    def orders_per_second(self) -> float:
        return len(self.releases) / self.elapsed

    @property
    def commands_per_order(self) -> float:
        return self.commands / len(self.releases)

    def release(self, percent: int) -> float:
        """Returns a percentile of the release times in seconds."""
        return self.releases[percent * (len(self.releases) - 1) // 100]


def run(way: str, url: str, clients: int, orders: int) -> Load:
    """Run `clients` clients in at most `PROCESSES` processes, which place `orders` orders in total."""
    processes = min(PROCESSES, clients)
    context = multiprocessing.get_context("spawn")
    barrier, results, stock = context.Barrier(processes + 1), context.SimpleQueue(), context.RawValue("i", orders)
    share = way, url, clients // processes, orders // processes, stock, barrier, results
    crowd = [context.Process(target=place_orders, args=share) for _ in range(processes)]
    with redis.Redis.from_url(url) as client:
        try:
            for process in crowd:
                process.start()
            barrier.wait(START)
            before, start = sent(way, client), time.perf_counter()
            releases = sorted(seconds for _ in crowd for seconds in results.get())
            elapsed = time.perf_counter() - start
            return Load(way, elapsed, releases, sent(way, client) - before, stock.value)
        finally:
            for process in crowd:
                process.kill()
                process.join()


def sent(way: str, client: Any) -> int:
    """Returns how many commands clients have sent for their locks. Commands inside scripts have other names."""
    stats: dict[str, Any] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in COMMANDS[way == PACKAGE])


def place_orders(way: str, url: str, clients: int, orders: int, stock: Any, barrier: Any, results: Any) -> None:
    """Place the orders of one process, in several threads. Puts the seconds of each release on the queue."""
    make_client = WAYS[way](url)
    to_place, releases, opened = iter(range(orders)), [], threading.Event()

    def buy() -> None:
        acquire = make_client()
        opened.wait()
        for _ in to_place:
            release = acquire()
            left = stock.value
            time.sleep(WORK)
            stock.value = left - 1
            start = time.perf_counter()
            release()
            releases.append(time.perf_counter() - start)

    threads = [threading.Thread(target=buy) for _ in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait(START)
    opened.set()
    for thread in threads:
        thread.join()
    results.put(releases)


def compare(url: str, orders: int) -> Iterator[str]:
    """Run all ways to lock, and print a table and bars. Yields a message for each unexpected result."""
    alone = run(BY_HAND, url, clients=1, orders=200)
    console.print(f"\nOne client alone: its DEL takes {alone.release(50) * 1000:.2f} ms. With {CLIENTS} clients:")
    with progress() as bar:
        loads = [run(way, url, CLIENTS, orders) for way in bar.track(WAYS, description="load test")]
    table = Table(title=f"{orders} orders, {CLIENTS} clients in {PROCESSES} processes, {WORK * 1000:.0f} ms an order")
    for heading in ("", *ROWS):
        table.add_column(heading, justify="right" if heading else "left")
    for load in loads:
        table.add_row(load.way, *(cell(load) for cell in ROWS.values()))
    console.print(table)
    for heading in "orders/s", "commands/order":
        console.print(heading, bars({load.way: float(ROWS[heading](load)) for load in loads}), sep="\n")
    for load in loads:
        if load.left:
            yield f"{load.way}: {load.left} of {orders} orders were overwritten by others"


ROWS: dict[str, Callable[[Load], str]] = {
    "orders/s": lambda load: f"{load.orders_per_second:.0f}",
    "release p50, ms": lambda load: f"{load.release(50) * 1000:.2f}",
    "release p99, ms": lambda load: f"{load.release(99) * 1000:.2f}",
    "commands/order": lambda load: f"{load.commands_per_order:.1f}",
}
