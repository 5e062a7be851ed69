"""mutex_extend.lua and mutex_release.lua"""

import pytest
from redis.exceptions import ResponseError

from django_redlock.core.keys import keys_for
from tests.scripts.conftest import OTHER, RESERVED, TOKEN, VALUE

DAY = 86_400_000


@pytest.fixture
def extend(call, keys):
    """`extend(ttl, fencing)`: run mutex_extend."""
    return lambda ttl, fencing=0: call("mutex_extend", (keys.lock, keys.fence)[: 1 + fencing], ttl, 0, TOKEN)


@pytest.fixture
def release(call, keys):
    """`release(keep)`: run mutex_release."""
    return lambda keep=0: call("mutex_release", keys.of_mutex, TOKEN, keep)


def test_extend_keeps_the_fence(redis, extend, keys):
    """With fencing the last fencing token is kept for a day after the last renewal."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.set(keys.fence, 17, px=5_000)
    extend(10_000)
    assert redis.pttl(keys.fence) <= 5_000
    extend(10_000, fencing=1)
    assert redis.get(keys.fence) == b"17"
    assert redis.pttl(keys.fence) > DAY - 5_000


def test_extend_nothing(redis, extend, keys, dump):
    """A free lock is not created by an extension, and a reserved lock stays reserved."""
    assert extend(10_000) == 0
    assert dump() == {}
    redis.set(keys.lock, RESERVED, px=5_000)
    assert extend(10_000) == 0
    assert redis.pttl(keys.lock) <= 5_000


def test_extend_many(redis, call, keys):
    """Each lock is extended whose token is right. Its value stays, and no other lock changes."""
    others = [keys_for(b"redlock", name) for name in (b"another", b"free")]
    redis.set(keys.lock, VALUE, px=10_000)
    redis.set(keys.fence, 17, px=5_000)
    redis.set(others[0].lock, OTHER + b" x", px=10_000)
    assert call("mutex_extend", [each.lock for each in (keys, *others)], 30_000, 0, *[TOKEN] * 3) == -1
    assert call("mutex_extend", [each.lock for each in (keys, others[1])], 30_000, 0, *[TOKEN] * 2) == 0
    assert redis.pttl(keys.lock) > 25_000
    assert redis.pttl(keys.fence) <= 5_000
    assert redis.pttl(others[0].lock) <= 10_000
    assert redis.get(keys.lock) == VALUE
    assert not redis.exists(others[1].lock)
    assert call("mutex_extend", (keys.lock, keys.fence, others[0].lock, others[0].fence), 40_000, 0, TOKEN, OTHER) == 2
    assert redis.pttl(keys.fence) > DAY - 5_000


def test_release_reserves(redis, release, keys, dump):
    """A lock with waiters stays reserved for a tenth of a second, in which it counts as not held."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    release()
    assert 0 < redis.pttl(keys.lock) <= 100
    redis.set(keys.lock, RESERVED)
    before = dump()
    assert release() == 0
    assert dump() == before


def test_release_wakes_one(redis, release, keys):
    """One wake-up is written for a few seconds, and never two."""
    redis.zadd(keys.waiters, {b"waits": 9e15, b"waits too": 9e15})
    for _ in range(2):
        redis.set(keys.lock, VALUE, px=10_000)
        assert release() == 1
        assert redis.llen(keys.wake) == 1
        assert 0 < redis.pttl(keys.wake) <= 10_000


def test_release_by_the_beginning_of_a_token(redis, call, keys, dump):
    """A release by the acquisition id alone releases the lock of any attempt."""
    redis.set(keys.lock, VALUE, px=10_000)
    assert call("mutex_release", keys.of_mutex, TOKEN[:16], 0) == 1
    assert dump() == {}


def test_wrong_type(redis, extend, release, keys):
    """A key of another type stays. It is not held for a release, and an error for an extension."""
    redis.rpush(keys.lock, "a")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        extend(1_000)
    assert release() == 0
    assert redis.lrange(keys.lock, 0, -1) == [b"a"]


def test_out_of_memory(redis, extend, release, keys, dump, full):
    """A server that is out of memory extends, releases, reserves and wakes, because Redis lets a script go on after its
    first write.
    """
    redis.set(keys.lock, VALUE, px=10_000)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    with full():
        assert extend(20_000) == 1
        assert release() == 1
    assert dump() == {keys.lock: RESERVED, keys.waiters: [b"waits"], keys.wake: [b"1"]}
