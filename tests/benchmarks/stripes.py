"""A flash sale with its stock in sixteen segments, compared with one segment."""

from __future__ import annotations

import contextlib
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import django
from django.conf import settings

from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row
from tests.support.processes import Channel, Worker

PROCESSES, THREADS = 4, 8
STRIPES = 1, 16
ROUNDS, SECONDS, TIMEOUT = 5, 1.0, 60.0
WORK = 0.005  # seconds in the critical section


def sell(channel: Channel, url: str, stock: str) -> None:
    """A worker: takes orders in several threads in every round."""
    sold = shared(stock)
    backend = {"BACKEND": "django_redlock.backends.redis.RedisBackend", "LOCATION": url, "OPTIONS": {"node_timeout": 5}}
    settings.configure(REDLOCK={"default": backend}, DATABASES={})
    django.setup()
    from django.http import HttpRequest, HttpResponse

    from django_redlock.decorators import locked_view

    def view_for(stripes: int):
        @locked_view("stock", stripes=stripes, blocking_timeout=None)
        def order(request: HttpRequest) -> HttpResponse:
            segment = stripes + request.lock.stripe  # type: ignore[attr-defined]
            before = sold[segment]
            time.sleep(WORK)
            sold[segment] = before + 1
            return HttpResponse()

        return order

    views = {stripes: view_for(stripes) for stripes in STRIPES}

    def take_orders(stripes: int, end: float) -> int:
        view, orders = views[stripes], 0
        while time.monotonic() < end:
            view(HttpRequest())
            orders += 1
        return orders

    with ThreadPoolExecutor(THREADS) as crowd:
        channel.say("ready")
        while (told := channel.hear("go", TIMEOUT))["stripes"]:
            end = time.monotonic() + SECONDS
            orders = [crowd.submit(take_orders, told["stripes"], end) for _ in range(THREADS)]
            channel.say("done", orders=sum(each.result() for each in orders))


def shared(stock: str) -> memoryview:
    """Return the shared counters of items that each segment has sold, which cost little beside the lock."""
    with Path(stock).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")


def _orders(workers: Sequence[Worker], count: int) -> int:
    for worker in workers:
        worker.tell("go", stripes=count)
    return sum(worker.expect("done", TIMEOUT)["orders"] for worker in workers)


def _idle() -> float:
    """Return the seconds for which all cores have been idle so far."""
    return int(Path("/proc/stat").read_text().split(maxsplit=5)[4]) / os.sysconf("SC_CLK_TCK")


def stripes() -> Iterator[Row]:
    """Orders a second from sixteen stripes, beside one: a view that works 5 ms in its critical section."""
    rates: dict[int, list[float]] = {count: [] for count in STRIPES}
    sold = dict.fromkeys(STRIPES, 0)
    busy: dict[int, list[float]] = {count: [] for count in STRIPES}
    with RedisServer() as server, tempfile.NamedTemporaryFile() as stock, contextlib.ExitStack() as stack:
        stock.truncate(2 * max(STRIPES) * 8)
        workers = [stack.enter_context(Worker(sell, server.url, stock.name)) for _ in range(PROCESSES)]
        for worker in workers:
            worker.expect("ready", TIMEOUT)
        for number in range(ROUNDS + 1):
            for count, measured in rates.items():
                start, idle = time.monotonic(), _idle()
                orders = _orders(workers, count)
                sold[count] += orders
                if number:  # the first is for warming up
                    measured.append(orders / SECONDS)
                    busy[count].append(1 - (_idle() - idle) / (time.monotonic() - start) / (os.cpu_count() or 1))
        for worker in workers:
            worker.tell("go", stripes=0)
            worker.result()
        kept = {count: sum(shared(stock.name)[count : 2 * count]) for count in STRIPES}
    one, many = STRIPES
    full = statistics.median(busy[many])
    note = f"{statistics.median(rates[many]):.0f}/s, {statistics.median(rates[one]):.0f}/s; cores {full:.0%} busy"
    ratio = statistics.median(high / low for low, high in zip(rates[one], rates[many], strict=True))
    yield Row(f"orders a second, {many} stripes / {one}, {WORK * 1000:g} ms each", ratio, 8, least=True, note=note)
    yield Row("orders that overwrote another", float(sum(sold.values()) - sum(kept.values())), 0, "")
