"""A pool with a limit: a free connection wakes a waiting thread or task, and a failed connect takes none away."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.client import pool as pool_module
from django_redlock.errors import LockUnavailable
from tests.support.service import poll

WAIT = 20


@pytest.fixture
def full_pool(redis_url, unique, monkeypatch):
    """A backend, its pool, and the two connections that the pool may have, both in use."""
    monkeypatch.setattr(pool_module, "FULL_CHECK_SECONDS", WAIT)
    backend = RedisBackend(f"{redis_url}?max_connections=2", node_timeout=2 * WAIT)
    assert not backend.lock(unique).locked()
    pool = backend.nodes[0].known_pool(None)
    return backend, pool, [pool.checkout() for _ in range(2)]


@pytest.mark.parametrize("end", ["checkin", "discard"])
def test_woken_by_a_free_connection(full_pool, client_of, unique, end):
    """A thread or a task is woken when a connection is returned, or closed."""
    backend, pool, in_use = full_pool
    lock = client_of(backend).lock(unique)
    with ThreadPoolExecutor() as executor:
        asked = executor.submit(lock.locked)
        poll(lambda: pool._limit.waiting, timeout=WAIT, what="a caller that waits")
        for connection in in_use:
            getattr(pool, end)(connection)
        assert asked.result(WAIT / 2) is False


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_failed_connect_leaves_no_connection_in_use(own_redis, unique, kind):
    """A connect that fails takes no connection of the pool from later callers, while its error exists."""
    server = own_redis()
    backend = RedisBackend(f"{server.url}?max_connections=2", node_timeout=WAIT)
    lock = backend.lock(unique)
    locked = lock.locked if kind == "sync" else lambda: asyncio.run(lock.alocked())
    errors = []
    server.kill()
    gc.disable()  # the error of the connect may be in a reference cycle
    try:
        for _ in range(3):
            with pytest.raises(LockUnavailable) as caught:
                locked()
            errors.append(caught.value)
        server.start()
        assert locked() is False
    finally:
        gc.enable()
