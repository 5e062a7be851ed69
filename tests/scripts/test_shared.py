"""shared_acquire.lua, shared_extend.lua and shared_release.lua"""

import re

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, OWNER, TOKEN, VALUE, now

ANOTHER = b"c" * 16 + b"00000000"


@pytest.fixture
def acquire(call, keys):
    """`acquire(token, ttl, wait, kind, limit, holder)`: run shared_acquire."""

    def run(token=TOKEN, ttl=10_000, wait=0, kind="rlock", limit=1, holder="me"):
        return call("shared_acquire", keys.of_mutex, token, OWNER, ttl, 0, wait, kind, limit, holder)

    return run


@pytest.fixture
def extend(call, keys):
    """`extend(ttl)`: run shared_extend."""
    return lambda ttl: call("shared_extend", (keys.lock,), ttl, 0, TOKEN)


@pytest.fixture
def release(call, keys):
    """`release(keep, token)`: run shared_release."""
    return lambda keep=0, token=TOKEN: call("shared_release", keys.of_mutex, token, keep)


def ends(redis, keys):
    """Return the remaining time of each share, by the first letter of its token."""
    shares = redis.hgetall(keys.lock)
    return {key[:1].decode(): int(re.search(rb"@(\d+)", value)[1]) - now(redis) for key, value in shares.items()}


@pytest.mark.parametrize("kind", ["rlock", "semaphore"])
def test_late_repetition(redis, acquire, keys, kind):
    """A repeated request that arrives after an extension does not shorten the lease."""
    acquire(ttl=60_000, kind=kind)
    assert acquire(ttl=1_000, kind=kind) > 0
    assert redis.pttl(keys.lock) > 30_000
    assert ends(redis, keys)["a"] > 30_000


def test_ended_shares_are_dropped(redis, acquire, keys, dump):
    """An expired share does not block other holders."""
    redis.hset(keys.lock, OTHER + b" x", f"rlock@{now(redis) - 1} you")
    redis.pexpire(keys.lock, 60_000)
    assert acquire() > 0
    assert list(dump()[keys.lock]) == [VALUE]
    assert redis.pttl(keys.lock) <= 10_000


def test_a_grant_wakes_the_next_waiter(redis, acquire, keys):
    """A grant of one of several permits wakes another waiter if permits are left."""
    permit = {"kind": "semaphore", "limit": 2, "holder": ""}
    redis.zadd(keys.waiters, {b"waits": 9e15})
    acquire(**permit)
    assert redis.llen(keys.wake) == 1
    redis.delete(keys.wake)
    acquire(OTHER, **permit)
    assert redis.exists(keys.wake) == 0


def test_extend_nothing(redis, acquire, extend, keys):
    """A missing or expired share is not created by an extension."""
    assert extend(10_000) == 0
    acquire(OTHER)
    redis.hset(keys.lock, VALUE, f"rlock@{now(redis) - 1} me")
    assert extend(10_000) == 0
    assert ends(redis, keys)["a"] < 0


def test_release_of_what_has_ended(redis, acquire, release, keys, dump):
    """An expired share counts as lost."""
    redis.hset(keys.lock, VALUE, f"rlock@{now(redis) - 1} me")
    assert release() == 0
    assert dump() == {}


def test_release_by_the_beginning_of_a_token(acquire, release, dump):
    """A release by the acquisition id alone releases the share of any attempt."""
    acquire()
    assert release(token=TOKEN[:16]) == 1
    assert dump() == {}


def test_out_of_memory(acquire, extend, release, full):
    """A server that is out of memory extends, and releases with `keep`."""
    acquire()
    with full():
        assert extend(20_000) == 1
        assert release(5_000) == 1
    assert 0 < acquire(OTHER)[1] <= 5_000


def test_other_kinds(redis, acquire, keys, dump):
    """A lock of another kind and a key of another type raise an error and stay."""
    for value in ({VALUE: f"semaphore@{now(redis) + 9_000} me"}, {b"a": b"celery record"}):
        redis.delete(keys.lock)
        redis.hset(keys.lock, mapping=value)
        before = dump()
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            acquire(OTHER)
        assert dump() == before
    redis.set(keys.lock, VALUE)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        acquire(OTHER)


def test_newcomers_queue(redis, acquire, extend, keys):
    """A newcomer with time to wait queues behind the waiters, and one without takes what is free."""
    permit = {"kind": "semaphore", "limit": 2, "holder": ""}
    acquire(OTHER, **permit)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(wait=6_000, **permit)[:2] == [0, 100]
    assert acquire(wait=-6_000, **permit) > 0
    extend(1)
    while isinstance(granted := acquire(ANOTHER, **permit), list):
        assert granted[1] <= 1


def test_newcomers_with_free_permits(redis, acquire, keys):
    """With more free permits than waiters a newcomer is granted."""
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(wait=6_000, kind="semaphore", limit=2, holder="") > 0


def test_holders_do_not_queue(redis, acquire, keys):
    """The holder of an rlock is granted again even if others wait."""
    acquire()
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert acquire(OTHER, wait=6_000) > 0
    assert acquire(wait=6_000) > 0


def test_a_waiter_that_leaves_passes_its_wake_up_on(redis, acquire, release, call, keys):
    """A waiter of a semaphore that leaves wakes the next, because a wake-up for a free permit may have been its own."""
    permit = {"kind": "semaphore", "limit": 2, "holder": ""}
    acquire(**permit)
    acquire(OTHER, **permit)
    acquire(ANOTHER, wait=6_000, **permit)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    release()
    redis.delete(keys.wake)  # the first waiter has received it
    entry = ANOTHER[:16] + b" " + OWNER
    assert call("waiter_remove", (keys.lock, keys.waiters, keys.wake), entry, b"") == 1
    assert redis.llen(keys.wake) == 1
