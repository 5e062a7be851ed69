"""mutex_extend.lua and mutex_release.lua"""

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, TOKEN, VALUE

DAY = 86_400_000


@pytest.fixture
def extend(call, keys):
    """`extend(ttl, tenure)`"""
    return lambda ttl, tenure="1 0 0": call("mutex_extend", (keys.lock,), TOKEN, ttl, tenure)


@pytest.fixture
def release(call, keys):
    """`release(keep)`"""
    return lambda keep=0: call("mutex_release", (keys.lock,), TOKEN, keep)


@pytest.mark.parametrize("ttl", [1_000, 20_000])
def test_extend(redis, extend, keys, dump, ttl):
    """What is left of the lease is replaced, by more or by less; the value stays."""
    redis.set(keys.lock, VALUE, px=10_000)
    assert extend(ttl) == 1
    assert ttl - 1_000 < redis.pttl(keys.lock) <= ttl
    assert dump() == {keys.lock: VALUE, keys.renewed: {TOKEN: b"1 0 0"}}


def test_extend_says_how_often(redis, extend, keys):
    """What the holder says of its renewals is kept for as long as the lease; what was said of holders before is not."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.hset(keys.renewed, OTHER, "7 1 1")
    extend(20_000, "1 5000 20000")
    extend(20_000, "2 9000 20000")
    assert redis.hgetall(keys.renewed) == {TOKEN: b"2 9000 20000"}
    assert 19_000 < redis.pttl(keys.renewed) <= 20_000


@pytest.mark.parametrize("extend_again", [1, 2])
def test_extend_whatever_is_in_the_way_of_that(redis, extend, keys, extend_again):
    """Who can't say so is renewed all the same."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.set(keys.renewed, "what is this")
    for _ in range(extend_again):
        assert extend(20_000) == 1
    assert redis.pttl(keys.lock) > 10_000


def test_extend_keeps_the_fence(redis, extend, keys):
    """The last fencing token lives for a day after the lock was held, not after it was taken."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.set(keys.fence, 17, px=5_000)
    extend(10_000)
    assert redis.get(keys.fence) == b"17"
    assert redis.pttl(keys.fence) > DAY - 5_000


def test_extend_nothing(redis, extend, dump):
    """A lock that nobody holds is not brought back."""
    assert extend(10_000) == 0
    assert dump() == {}


def test_extend_of_another(redis, extend, keys, dump):
    """Another's lease is left alone."""
    redis.set(keys.lock, OTHER + b" x", px=10_000)
    assert extend(20_000) == -1
    assert redis.pttl(keys.lock) <= 10_000
    assert dump() == {keys.lock: OTHER + b" x"}


def test_release(redis, release, keys, dump):
    """The lock is gone, and while nobody waits nothing else comes instead."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.set(keys.fence, 17)
    assert release() == 1
    assert dump() == {keys.fence: b"17"}
    assert release() == 0


def test_release_of_another(redis, release, keys, dump):
    """Another's lock is left alone, and nobody is woken."""
    redis.set(keys.lock, OTHER + b" x", px=10_000)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    before = dump()
    assert release() == -1
    assert dump() == before


def test_release_wakes_one(redis, release, keys):
    """One wake-up lies there for whoever waits, for a few seconds; never two."""
    redis.zadd(keys.waiters, {b"waits": 9e15, b"waits too": 9e15})
    for _ in range(2):
        redis.set(keys.lock, VALUE, px=10_000)
        assert release() == 1
        assert redis.llen(keys.wake) == 1
        assert 0 < redis.pttl(keys.wake) <= 10_000


def test_release_by_the_beginning_of_a_token(redis, call, keys, dump):
    """What all attempts of one acquire have in common frees any of them."""
    redis.set(keys.lock, VALUE, px=10_000)
    assert call("mutex_release", (keys.lock,), TOKEN[:24], 0) == 1
    assert dump() == {}


def test_keep(redis, release, keys, dump):
    """With `keep` the lock stays taken that long, and nobody is woken for nothing."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert release(2_000) == 1
    assert 0 < redis.pttl(keys.lock) <= 2_000
    assert keys.wake not in dump()


@pytest.mark.parametrize("script", ["extend", "release"])
def test_wrong_type(redis, request, keys, script):
    """A key of another type is an error that says so, and stays."""
    redis.rpush(keys.lock, "a")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        request.getfixturevalue(script)(1_000)
    assert redis.lrange(keys.lock, 0, -1) == [b"a"]


def test_out_of_memory(redis, extend, release, keys, dump, full):
    """A server that is full still extends and frees, and wakes: Redis lets a script go on that has begun to write."""
    redis.set(keys.lock, VALUE, px=10_000)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    with full():
        assert extend(20_000) == 1
        assert release() == 1
    assert dump() == {keys.waiters: [b"waits"], keys.wake: [b"1"], keys.renewed: {TOKEN: b"1 0 0"}}
