"""A handle that acquires its lock again, within the block whose lease was lost."""

# ruff: noqa: PT012  (the end of a block raises here)

import asyncio
import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockLost


@pytest.fixture
def backend(start, redis_url):
    return start(contextlib.closing(RedisBackend(redis_url, node_timeout=10, ttl=200)))


def test_the_outer_block_raises(backend, unique):
    """The outer block raises LockLost at its end, and the inner block releases its own lease."""
    lock = backend.lock(unique)
    with pytest.raises(LockLost), lock:
        backend.force_release(unique)
        with lock:
            assert lock.owned()
        assert lock.token is None


def test_the_outer_block_raises_in_asyncio(backend, unique):
    """The same for a task."""

    async def scenario():
        lock = backend.lock(unique)
        with pytest.raises(LockLost):
            async with lock:
                await backend.aforce_release(unique)
                async with lock:
                    assert await lock.aowned()
        await backend.aclose()

    asyncio.run(scenario())


def test_on_lost(backend, unique):
    """`on_lost` is called once, and the end of the outer block raises nothing."""
    losses = []
    lock = backend.lock(unique, on_lost=losses.append)
    with lock:
        backend.force_release(unique)
        with lock:
            pass
    assert losses == [lock]
