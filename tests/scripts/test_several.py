"""Several locks in one request: striped_acquire.lua, and mutex_acquire.lua, mutex_extend.lua and mutex_release.lua"""

import pytest

from tests.scripts.conftest import RESERVED, THEIRS, VALUE, WAITER


def hold(redis, place, ttl=60_000):
    redis.set(place.lock, THEIRS, px=ttl)


def test_striped_repeated(redis, acquire, places, dump):
    """The same token gets the same stripe again, even if an earlier one is free by then."""
    hold(redis, places[0])
    assert acquire("striped")[3] == 2
    redis.delete(places[0].lock)
    assert acquire("striped")[3] == 2
    assert dump() == {places[1].lock: VALUE}


def test_striped_waiter_is_listed(redis, acquire, places):
    """A waiter is listed at each stripe, and at none when it is granted or gives up."""
    for place in places:
        hold(redis, place)
    for end in ("granted", "gives up"):
        acquire("striped", wait=6_000)
        assert [redis.zrange(place.waiters, 0, -1) for place in places] == [[WAITER]] * 3
        if end == "granted":
            redis.delete(places[1].lock)
            assert acquire("striped", wait=-6_000)[3] == 2
            redis.set(places[1].lock, THEIRS, px=60_000)
        else:
            assert acquire("striped", wait=-1)[0] == 0
        assert not any(redis.exists(place.waiters) for place in places)


def test_striped_newcomer(redis, acquire, places):
    """A newcomer with time to wait leaves as many free stripes as there are waiters."""
    for place in places:
        redis.zadd(place.waiters, {b"waits": 9e15, b"has left": 1})
    assert acquire("striped", wait=6_000)[3] == 1
    redis.delete(places[0].lock)
    for place in places[1:]:
        hold(redis, place)
    for _ in range(2):
        assert acquire("striped", wait=6_000)[:2] == [0, 100]
        assert acquire("striped")[3] == 1
        redis.set(places[0].lock, RESERVED)


@pytest.mark.parametrize(("value", "answer"), [(None, 0), (RESERVED, 0), (THEIRS, -1)])
def test_multi_extend_without_one(redis, acquire, extend, places, value, answer):
    """If one of the locks is free or has another holder, the reply says so, and its key is left alone."""
    acquire("multi")
    redis.delete(places[2].lock)
    if value:
        redis.set(places[2].lock, value)
    assert extend("multi", 20_000) == answer
    assert redis.pttl(places[0].lock) > 15_000
    assert redis.pttl(places[2].lock) < 0


def test_multi_release_without_one(redis, acquire, release, places, dump):
    """If one lock was lost or has another type, the others are released, and the reply says so."""
    acquire("multi")
    redis.delete(places[0].lock, places[1].lock)
    hold(redis, places[0])
    redis.hset(places[1].lock, "a", "b")
    assert release("multi") == -1
    assert set(dump()) == {places[0].lock, places[1].lock}


def test_waiter_leaves(redis, call, places):
    """A waiter that leaves is listed nowhere, and the next waiter of a free lock is woken."""
    hold(redis, places[0])
    redis.set(places[1].lock, RESERVED)
    for place in places:
        redis.zadd(place.waiters, {WAITER: 9e15, b"waits": 9e15})
    keys = [key for place in places for key in place.of_mutex]
    assert call("waiter_remove", keys, WAITER, b"") == 1
    assert [redis.zrange(place.waiters, 0, -1) for place in places] == [[b"waits"]] * 3
    assert [redis.llen(place.wake) for place in places] == [0, 1, 1]
    assert call("waiter_remove", keys, WAITER, b"") == 0
