"""Acquire and release without contention, on one Redis."""

from __future__ import annotations

from collections.abc import Iterator

import redis

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, interleaved, one_core


def pair() -> Iterator[Row]:
    """``with backend.lock()`` and a kept handle beside redis-py, python-redis-lock and a bare socket."""
    with one_core(), RedisServer() as server:
        # As users make it: redis.Redis(host, port).
        client = redis.Redis("127.0.0.1", server.port)
        backend = RedisBackend(server.url)
        kept = backend.lock("kept")

        def new_handle() -> None:
            with backend.lock("new"):
                pass

        def same_handle() -> None:
            kept.acquire()
            kept.release()

        rounds = interleaved(
            {
                "hand-written redis-py": peers.hand_written(client),
                "with backend.lock()": new_handle,
                "kept handle": same_handle,
                "redis-py's Lock": peers.redis_py(client),
                "python-redis-lock": peers.python_redis_lock(client),
                "bare socket": peers.bare_socket(server.port),
            }
        )
        backend.close()
        client.close()
    bars = {"with backend.lock()": 0.9, "kept handle": 0.9}
    others = {"redis-py's Lock": None, "python-redis-lock": None, "bare socket": None}
    yield from rounds.rows("hand-written redis-py", {**bars, **others})
