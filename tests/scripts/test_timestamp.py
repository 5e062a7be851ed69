"""timestamp_acquire.lua: waiters, and a full server. backends/timestamp tests the rest with older code."""

import pytest

from tests.scripts.conftest import OTHER, OWNER, TOKEN


@pytest.fixture
def acquire(call, keys):
    """`acquire(token, wait)`"""
    where = keys.lock, keys.waiters, keys.fence
    return lambda token=TOKEN, wait=0: call("timestamp_acquire", where, token, OWNER, 10_000, wait, 1000, 0)


def test_newcomers_queue(redis, acquire, keys):
    """A newcomer that can wait is listed behind those who queue for a lock that is free; others take it."""
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(wait=6_000)[:2] == [0, 100]
    assert redis.zcard(keys.waiters) == 2
    assert acquire(wait=-6_000) > 0
    assert redis.zrange(keys.waiters, 0, -1) == [b"waits"]
    redis.delete(keys.lock)
    assert acquire(OTHER) > 0


def test_again(redis, acquire, keys):
    """Whoever has it is granted it again, whoever queues."""
    acquire()
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(wait=6_000) > 0


def test_those_who_have_gone(redis, acquire, keys):
    """Who has not been heard of for too long is in nobody's way."""
    redis.zadd(keys.waiters, {b"waits": 1})
    assert acquire(wait=6_000) > 0


def test_out_of_memory(acquire, call, keys, full):
    """A server that is full still extends and frees, with `keep`, too."""
    acquire()
    holder, lock = keys.fence, keys.lock
    with full():
        assert call("timestamp_extend", (lock, holder), TOKEN, 20_000, 1000, 0) == 1
        assert call("timestamp_release", (lock, keys.waiters, keys.wake, holder), TOKEN, 2_000, 1000, 0) == 1
    assert 0 < acquire(OTHER)[1] <= 3_000
