"""What it costs to keep the last hour."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.history import recorder
from django_redlock.core.pulse import pulse
from testproject.redis_server import RedisServer
from tests.benchmarks.measure import Row, interleaved, one_core

PAIRS = 5000


def history() -> Iterator[Row]:
    """Acquire and release with the last hour kept and without, and what is done for it beside them."""
    with one_core(), RedisServer() as server:
        off, on = RedisBackend(server.url, history=False), RedisBackend(server.url)
        off.hook, on.hook = lambda _event: None, partial(pulse.tell, place=on)
        pulse.watch("history", recorder.see)

        def pair(backend: RedisBackend) -> None:
            with backend.lock("x"):
                pass

        rounds = interleaved({"off": partial(pair, off), "on": partial(pair, on)})
        yield from rounds.rows("off", {"on": 1.05})
        pulse.beat()
        start = time.perf_counter()
        for _ in range(PAIRS):
            pair(off)
        pairs = time.perf_counter() - start
        told: list[object] = []
        on.hook = told.append
        for _ in range(PAIRS):
            pair(on)
        start = time.process_time()
        for event in told:
            pulse.tell(event, place=on)  # type: ignore[arg-type]
        pulse.beat()
        beside = time.process_time() - start
        yield Row("on, all that is done for it, of a pair", beside / pairs * 100, 5, "%")
        pulse.forget("history")
        for backend in (off, on):
            backend.close()
