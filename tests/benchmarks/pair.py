"""Acquire and release without contention, on one Redis."""

from collections.abc import Iterator

import redis
from redis._parsers import _RESP2Parser
from redis.connection import DefaultParser

from django_redlock.backends.redis import RedisBackend
from testproject.redis_server import RedisServer
from tests.benchmarks import peers
from tests.benchmarks.measure import Row, contest, one_core, timed

HIREDIS = f"hand-written redis-py, {'hiredis' if 'Hiredis' in DefaultParser.__name__ else 'WITHOUT hiredis'}"


def pair() -> Iterator[Row]:
    """``with backend.lock()`` and a kept handle beside redis-py with both parsers, and others."""
    with one_core(), RedisServer() as server:
        # As production makes it: redis.Redis(host, port) with hiredis. Without it, redis-py parses in Python.
        client = redis.Redis("127.0.0.1", server.port)
        python_parser = redis.Redis.from_pool(
            redis.ConnectionPool(host="127.0.0.1", port=server.port, protocol=2, parser_class=_RESP2Parser)
        )
        backend = RedisBackend(server.url)
        kept = backend.lock("kept")

        def new_handle() -> None:
            with backend.lock("new"):
                pass

        def same_handle() -> None:
            kept.acquire()
            kept.release()

        results = contest(
            {
                HIREDIS: peers.hand_written(client),
                "hand-written redis-py, Python's parser": peers.hand_written(python_parser),
                "with backend.lock()": new_handle,
                "kept handle": same_handle,
                "redis-py's Lock": peers.redis_py(client),
                "python-redis-lock": peers.python_redis_lock(client),
                "bare socket": peers.bare_socket(server.port),
            },
            40,
            lambda pair: timed(pair, 60),
        )
        backend.close()
        client.close()
        python_parser.close()
    bars = {"with backend.lock()": 0.85, "kept handle": 0.75}
    others = ("hand-written redis-py, Python's parser", "redis-py's Lock", "python-redis-lock", "bare socket")
    for side in (*bars, *others):
        yield results.row("", side, HIREDIS, "p50", bars.get(side))
