"""timestamp_acquire.lua: waiters. backends/timestamp tests the rest with older code."""

from tests.scripts.conftest import OTHER, TOKEN, WAITER


def test_all_attempts_are_one_waiter(redis, acquire, call, keys):
    """A waiter is listed once for all its attempts, and no longer after its grant or its removal."""
    attempts = [TOKEN[:16] + b"%08d" % number for number in range(4)]
    acquire("timestamp", OTHER)
    acquire("timestamp", attempts[0], wait=6_000)
    acquire("timestamp", attempts[1], wait=-6_000)
    assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
    assert call("waiter_remove", (keys.lock, keys.waiters, keys.wake), WAITER, b"") == 1
    acquire("timestamp", attempts[2], wait=-6_000)
    redis.delete(keys.lock)
    assert acquire("timestamp", attempts[3], wait=-6_000) > 0
    assert not redis.exists(keys.waiters)


def test_expired_waiters(redis, acquire, keys):
    """A waiter whose entry has expired does not block newcomers."""
    redis.zadd(keys.waiters, {b"waits": 1})
    assert acquire("timestamp", wait=6_000) > 0
