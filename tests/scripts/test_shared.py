"""shared_acquire.lua, shared_extend.lua and shared_release.lua: reentrant locks and semaphores"""

from tests.scripts.conftest import ANOTHER, OTHER, OWNER, TOKEN, VALUE, now


def test_ended_shares_are_dropped(redis, acquire, keys, dump):
    """An expired share does not block other holders."""
    redis.hset(keys.lock, OTHER + b" x", f"rlock@{now(redis) - 1} you")
    redis.pexpire(keys.lock, 60_000)
    assert acquire("rlock") > 0
    assert list(dump()[keys.lock]) == [VALUE]
    assert redis.pttl(keys.lock) <= 10_000


def test_ended_shares_are_lost(redis, acquire, extend, release, keys, dump):
    """A missing or expired share is neither extended nor released."""
    assert extend("rlock", 10_000) == 0
    acquire("rlock", OTHER)
    redis.hset(keys.lock, VALUE, ended := f"rlock@{now(redis) - 1} me")
    assert extend("rlock", 10_000) == 0
    assert redis.hget(keys.lock, VALUE).decode() == ended
    assert release("rlock") == 0
    assert release("rlock", OTHER) == 1
    assert dump() == {}


def test_a_grant_wakes_the_next_waiter(redis, acquire, keys):
    """A grant of one of several permits wakes another waiter if permits are left."""
    redis.zadd(keys.waiters, {b"waits": 9e15})
    for token, wake_ups in (TOKEN, 1), (OTHER, 0):
        acquire("semaphore", token, limit=2)
        assert redis.llen(keys.wake) == wake_ups
        redis.delete(keys.wake)


def test_holders_do_not_queue(redis, acquire, keys):
    """The holder of an rlock is granted again even if others wait."""
    acquire("rlock")
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire("rlock", OTHER, wait=6_000) > 0
    assert acquire("rlock", wait=6_000) > 0


def test_a_waiter_that_leaves_passes_its_wake_up_on(redis, acquire, release, call, keys):
    """A waiter of a semaphore that leaves wakes the next, because a wake-up for a free permit may have been its own."""
    acquire("semaphore", limit=2)
    acquire("semaphore", OTHER, limit=2)
    acquire("semaphore", ANOTHER, wait=6_000, limit=2)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    release("semaphore")
    redis.delete(keys.wake)  # the first waiter has received it
    entry = ANOTHER[:16] + b" " + OWNER
    assert call("waiter_remove", (keys.lock, keys.waiters, keys.wake), entry, b"") == 1
    assert redis.llen(keys.wake) == 1
