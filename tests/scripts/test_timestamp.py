"""timestamp_acquire.lua: waiters, and a full server. backends/timestamp tests the rest with older code."""

import pytest

from tests.scripts.conftest import OTHER, OWNER, TOKEN, WAITER


@pytest.fixture
def acquire(call, keys):
    """`acquire(token, wait)`: run timestamp_acquire."""
    where = keys.lock, keys.waiters, keys.fence
    return lambda token=TOKEN, wait=0: call("timestamp_acquire", where, token, OWNER, 10_000, wait, 1000, 0)


def test_newcomers_queue(redis, acquire, keys):
    """A newcomer with time to wait is listed behind the waiters of a free lock, and one without takes it."""
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(wait=6_000)[:2] == [0, 100]
    assert redis.zcard(keys.waiters) == 2
    assert acquire(wait=-6_000) > 0
    assert redis.zrange(keys.waiters, 0, -1) == [b"waits"]
    redis.delete(keys.lock)
    assert acquire(OTHER) > 0


def test_all_attempts_are_one_waiter(redis, acquire, call, keys):
    """A waiter is listed once for all its attempts, and no longer after its grant or its removal."""
    attempts = [TOKEN[:16] + b"%08d" % number for number in range(4)]
    acquire(OTHER)
    acquire(attempts[0], 6_000)
    acquire(attempts[1], -6_000)
    assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
    assert call("waiter_remove", (keys.lock, keys.waiters, keys.wake), WAITER, b"") == 1
    acquire(attempts[2], -6_000)
    redis.delete(keys.lock)
    assert acquire(attempts[3], -6_000) > 0
    assert not redis.exists(keys.waiters)


def test_late_repetition(redis, acquire, keys):
    """A repeated request that arrives after an extension does not shorten the lease, for older code neither."""
    acquire()
    redis.pexpire(keys.lock, 60_000)
    assert acquire() > 0
    assert redis.pttl(keys.lock) > 30_000
    assert int(redis.get(keys.lock)) - redis.time()[0] > 30
    assert redis.pttl(keys.fence) > 30_000


def test_expired_waiters(redis, acquire, keys):
    """A waiter whose entry has expired does not block newcomers."""
    redis.zadd(keys.waiters, {b"waits": 1})
    assert acquire(wait=6_000) > 0


def test_out_of_memory(acquire, call, keys, full):
    """A server that is out of memory extends, as it does for a release with `keep`."""
    acquire()
    holder, lock = keys.fence, keys.lock
    with full():
        assert call("timestamp_extend", (lock, holder), TOKEN, 5_000, 1000, 0) == 1
    assert 0 < acquire(OTHER)[1] <= 6_000
