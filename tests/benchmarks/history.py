"""The cost of the history of the last hour."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.events import Event
from django_redlock.history.event_queue import event_queue
from django_redlock.history.recorder import recorder
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, interleaved, one_core

PAIRS = 3000


def _times(number: int, function: Callable[[], object]) -> None:
    for _ in range(number):
        function()


def _tell(place: RedisBackend, events: list[Event]) -> None:
    for event in events:
        event_queue.record_event(event, backend=place)


def _cpu(*functions: Callable[[], object]) -> list[float]:
    """Return the thread's CPU time for each function, which other programs don't affect."""
    taken = []
    for function in functions:
        start = time.thread_time()
        function()
        taken.append(time.thread_time() - start)
    return taken


def history() -> Iterator[Row]:
    """Acquire and release with and without the history, and the background work for the history."""
    with one_core(), RedisServer() as server:
        off, on = RedisBackend(server.url, history=False), RedisBackend(server.url)
        off.hook, on.hook = lambda _event: None, partial(event_queue.record_event, backend=on)
        event_queue.subscribe("history", recorder.observe)

        def pair(backend: RedisBackend) -> None:
            with backend.lock("x"):
                pass

        rounds = interleaved({"off": partial(pair, off), "on": partial(pair, on)})
        yield from rounds.rows("off", {"on": 1.05})
        event_queue.flush()
        told: list[Event] = []
        on.hook = told.append
        _times(PAIRS, partial(pair, on))
        functions = partial(_times, PAIRS, partial(pair, off)), partial(_tell, on, told), event_queue.flush
        seen = [_cpu(*functions) for _ in range(9)]
        pairs, telling, beside = map(min, zip(*seen, strict=True))
        yield Row("on, what a pair does for it, of its CPU time", telling / pairs * 100, 5, "%")
        yield Row("on, all that is done for it, of a pair's CPU time", (telling + beside) / pairs * 100, 5, "%")
        event_queue.unsubscribe("history")
        for backend in (off, on):
            backend.close()
