"""striped_acquire.lua, and mutex_acquire.lua, mutex_extend.lua and mutex_release.lua for several locks"""

import pytest
from redis.exceptions import ResponseError

from django_redlock.core.keys import keys_for, stripe_name
from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, VALUE, WAITER

THEIRS = OTHER + b' {"host":"there"}'
DAY = 86_400_000


@pytest.fixture
def places():
    """The keys of three stripes."""
    return [keys_for(b"redlock", stripe_name("stock", index).encode()) for index in range(3)]


@pytest.fixture
def take(call, places):
    """`take("striped" or "multi", token, ttl, fencing, wait)`: run an acquire script."""

    def run(which, token=TOKEN, ttl=10_000, fencing=0, wait=0):
        keys = [key for each in places for key in (*each.of_mutex, *[each.fence][:fencing])]
        return call({"multi": "mutex_acquire"}.get(which, "striped_acquire"), keys, token, OWNER, ttl, fencing, wait)

    return run


@pytest.fixture
def release(call, places):
    """`release(keep, need, token)`: run mutex_release."""
    keys = [key for each in places for key in each.of_mutex]
    return lambda keep=0, need=3, token=TOKEN: call("mutex_release", keys, token, keep, need)


@pytest.fixture
def extend(call, places):
    """`extend(ttl, token)`: run mutex_extend."""
    return lambda ttl, token=TOKEN: call("mutex_extend", [each.lock for each in places], ttl, 0, *[token] * 3)


def hold(redis, place, ttl=60_000):
    redis.set(place.lock, THEIRS, px=ttl)


@pytest.mark.parametrize(("which", "granted"), [("striped", 1), ("multi", 3)])
def test_late_repetition(redis, take, places, which, granted):
    """A repeated request that arrives after an extension shortens no lease."""
    take(which, ttl=60_000)
    take(which, ttl=1_000)
    assert [redis.pttl(each.lock) > 30_000 for each in places] == [True] * granted + [False] * (3 - granted)


# ── any ──────────────────────────────────────────────────────────────────────────────────────


def test_striped_free(redis, take, places, dump):
    """The first free stripe is granted as a mutex, and the reply has its index."""
    granted, fence, micros, which = take("striped")
    assert (granted, which) == (1, 1)
    assert fence == micros
    assert dump() == {places[0].lock: VALUE}
    assert 3_000 < redis.pttl(places[0].lock) <= 10_000


def test_striped_passes_over_held_stripes(redis, take, places):
    """Held stripes are passed over."""
    hold(redis, places[0])
    hold(redis, places[1])
    assert take("striped")[3] == 3
    assert redis.get(places[2].lock) == VALUE


def test_striped_repeated(redis, take, places, dump):
    """The same token gets the same stripe again, even if an earlier one is free by then."""
    hold(redis, places[0])
    assert take("striped")[3] == 2
    redis.delete(places[0].lock)
    assert take("striped")[3] == 2
    assert dump() == {places[1].lock: VALUE}


def test_striped_refused(redis, take, places, dump):
    """If all stripes are held, the reply has the shortest remaining lease and its owner, and nothing changes."""
    for place, ttl in zip(places, (60_000, 5_000, 90_000), strict=True):
        hold(redis, place, ttl)
    before = dump()
    refused, left, _, owner = take("striped")
    assert (refused, owner) == (0, b'{"host":"there"}')
    assert 0 < left <= 5_000
    assert dump() == before


def test_striped_refused_without_an_end(redis, take, places):
    """If all stripes are held without an end, the remaining time is -1."""
    for place in places:
        redis.set(place.lock, THEIRS)
    assert take("striped")[:2] == [0, -1]


def test_striped_waiter_is_listed(redis, take, places):
    """A waiter is listed at each stripe, and at none when it is granted or gives up."""
    for place in places:
        hold(redis, place)
    for end in ("granted", "gives up"):
        take("striped", wait=6_000)
        assert [redis.zrange(place.waiters, 0, -1) for place in places] == [[WAITER]] * 3
        if end == "granted":
            redis.delete(places[1].lock)
            assert take("striped", wait=-6_000)[3] == 2
            redis.set(places[1].lock, THEIRS, px=60_000)
        else:
            assert take("striped", wait=-1)[0] == 0
        assert not any(redis.exists(place.waiters) for place in places)


def test_striped_newcomer(redis, take, places):
    """A newcomer with time to wait leaves as many free stripes as there are waiters."""
    for place in places:
        redis.zadd(place.waiters, {b"waits": 9e15, b"has left": 1})
    assert take("striped", wait=6_000)[3] == 1
    redis.delete(places[0].lock)
    for place in places[1:]:
        hold(redis, place)
    for _ in range(2):
        assert take("striped", wait=6_000)[:2] == [0, 100]
        assert take("striped", wait=0)[3] == 1
        redis.set(places[0].lock, RESERVED)


def test_striped_wakes_a_waiter_of_another_stripe(redis, take, places):
    """A woken waiter that takes a stripe wakes a waiter of another free stripe, once."""
    for place in places:
        redis.zadd(place.waiters, {b"waits": 9e15})
    hold(redis, places[1])
    assert take("striped", wait=-6_000)[3] == 1
    assert [redis.llen(place.wake) for place in places] == [0, 0, 1]
    assert 0 < redis.pttl(places[2].wake) <= 10_000
    redis.delete(places[0].lock)
    assert take("striped", wait=-6_000)[3] == 1
    assert redis.llen(places[2].wake) == 1


def test_striped_fencing(redis, take, places):
    """The fencing token is that of the granted stripe."""
    hold(redis, places[0])
    redis.set(places[1].fence, 9 * 10**15)
    redis.set(places[2].fence, 9 * 10**15 + 5)
    assert take("striped", fencing=1)[1] == 9 * 10**15 + 1
    assert redis.pttl(places[1].fence) > DAY - 5_000


@pytest.mark.parametrize("which", ["striped", "multi"])
def test_key_of_another_type(redis, take, places, which, dump):
    """A key of another type raises an error and stays."""
    redis.hset(places[0].lock, "a", "b")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        take(which)
    assert set(dump()) == {places[0].lock}


# ── all ──────────────────────────────────────────────────────────────────────────────────────


def test_multi_free(redis, take, places, dump):
    """All locks are granted, each as a mutex, and are granted again to the same token."""
    for _ in range(2):
        assert isinstance(take("multi"), int)
        assert dump() == {place.lock: VALUE for place in places}
        assert all(3_000 < redis.pttl(place.lock) <= 10_000 for place in places)


def test_multi_refused(redis, take, places, dump):
    """If one lock is held none is granted, and the reply has its index, remaining lease and owner."""
    hold(redis, places[1], 5_000)
    before = dump()
    refused, left, _, owner, which = take("multi")
    assert (refused, owner, which) == (0, b'{"host":"there"}', 2)
    assert 0 < left <= 5_000
    assert dump() == before


def test_multi_waiter_is_listed(redis, take, places):
    """A waiter is listed at the lock that blocks it, then at the next, and in the end at none."""
    hold(redis, places[0])
    hold(redis, places[2])
    take("multi", wait=6_000)
    assert [redis.exists(place.waiters) for place in places] == [1, 0, 0]
    redis.delete(places[0].lock)
    assert take("multi", wait=-6_000)[4] == 3
    assert [redis.exists(place.waiters) for place in places] == [0, 0, 1]
    assert take("multi", wait=-1)[4] == 3
    assert not any(redis.exists(place.waiters) for place in places)


def test_multi_newcomer(redis, take, places):
    """A newcomer with time to wait queues behind the waiters of a reserved lock. Other callers get it."""
    for wait in (-6_000, 0):
        redis.set(places[1].lock, RESERVED, px=60_000)
        refused, left, _, owner, which = take("multi", wait=6_000)
        assert (refused, owner, which) == (0, b"", 2)
        assert 30_000 < left <= 60_000
        assert isinstance(take("multi", wait=wait), int)
        assert redis.get(places[1].lock) == VALUE


def test_multi_passes_on_its_wake_up(redis, take, places):
    """A waiter that is woken in vain wakes the next waiter of a free lock."""
    redis.zadd(places[0].waiters, {WAITER: 9e15, b"waits": 9e15})
    hold(redis, places[1])
    assert take("multi", wait=-6_000)[4] == 2
    assert [redis.llen(place.wake) for place in places] == [1, 0, 0]
    assert redis.zrange(places[0].waiters, 0, -1) == [b"waits"]


def test_multi_fencing(redis, take, places):
    """One fencing token is stored for all locks, larger than each one's last."""
    redis.set(places[1].fence, 9 * 10**15)
    assert take("multi", fencing=1)[1] == 9 * 10**15 + 1
    assert [int(redis.get(place.fence)) for place in places] == [9 * 10**15 + 1] * 3


# ── extend, release ──────────────────────────────────────────────────────────────────────────


def test_multi_extend(redis, take, extend, places):
    """The leases of all are replaced."""
    take("multi")
    assert extend(20_000) == 3
    assert all(15_000 < redis.pttl(place.lock) <= 20_000 for place in places)


@pytest.mark.parametrize(("value", "answer"), [(None, 0), (RESERVED, 0), (THEIRS, -1)])
def test_multi_extend_without_one(redis, take, extend, places, value, answer):
    """If one of the locks is free or has another holder, the reply says so, and its key is left alone."""
    take("multi")
    redis.delete(places[2].lock)
    if value:
        redis.set(places[2].lock, value)
    assert extend(20_000) == answer
    assert redis.pttl(places[2].lock) < 0


def test_multi_release(redis, take, release, places, dump):
    """All locks are released, and one waiter of each is woken."""
    take("multi")
    redis.zadd(places[2].waiters, {b"waits": 9e15})
    assert release() == 1
    assert 0 < redis.pttl(places[2].lock) <= 100
    redis.delete(places[2].lock)
    assert set(dump()) == {places[2].waiters, places[2].wake}
    redis.set(places[2].lock, RESERVED)
    assert release() == 0


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


def test_multi_release_without_one(redis, take, release, places, dump):
    """If one lock was lost or has another type, the others are released, and the reply says so."""
    take("multi")
    redis.delete(places[0].lock, places[1].lock)
    hold(redis, places[0])
    redis.hset(places[1].lock, "a", "b")
    assert release() == -1
    assert set(dump()) == {places[0].lock, places[1].lock}


def test_striped_release(take, release, dump):
    """The granted stripe is released, also by the acquisition id alone."""
    take("striped")
    assert release(need=1, token=TOKEN[:16]) == 1
    assert dump() == {}
    assert release(need=1) == 0


def test_multi_keep(redis, take, release, places):
    """With `keep` all locks stay for that time."""
    take("multi")
    assert release(keep=5_000) == 1
    assert all(0 < redis.pttl(place.lock) <= 5_000 for place in places)
