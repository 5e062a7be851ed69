"""mutex_acquire.lua, mutex_extend.lua and mutex_release.lua"""

import pytest

from tests.scripts.conftest import OTHER, RESERVED, THEIRS, TOKEN, VALUE, WAITER, now

DAY = 86_400_000
AGAIN = TOKEN[:-1] + b"1"  # the token of the next attempt


@pytest.mark.parametrize(("value", "owner"), [(b"0815", b""), (AGAIN + b" x", b"x")])
def test_held_by_another(redis, acquire, keys, value, owner):
    """The value of another program is not its owner, but its secret. One that begins as the token is another's."""
    redis.set(keys.lock, value)
    refused = acquire("mutex")
    assert (refused[:2], refused[3], redis.get(keys.lock)) == ([0, -1], owner, value)


def test_a_dead_waiter_reserves_no_lock_for_ever(redis, acquire, release, keys):
    """A newcomer to a reserved lock removes expired entries. Otherwise each release would reserve the lock again."""
    redis.set(keys.lock, RESERVED, px=60_000)
    redis.zadd(keys.waiters, {b"lapsed": now(redis) - 1})
    assert acquire("mutex", wait=6_000)[0] == 0
    assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
    assert acquire("mutex", AGAIN, wait=-6_000) > 0
    assert release("mutex", AGAIN) == 1
    assert not redis.exists(keys.lock)


def test_queues(redis, acquire, keys):
    """A waiter is listed by its acquisition id for the given time, and expired entries are removed."""
    redis.set(keys.lock, OTHER, px=9_000)
    redis.zadd(keys.waiters, {b"lapsed": now(redis) - 1, b"waits": now(redis) + 5_000})
    before = now(redis)
    assert acquire("mutex", wait=6_000)[0] == 0
    entries = dict(redis.zrange(keys.waiters, 0, -1, withscores=True))
    assert set(entries) == {b"lapsed", b"waits", WAITER}
    assert before + 6_000 <= entries[WAITER] <= now(redis) + 6_000
    (seconds, rest), left = redis.pipeline().time().pttl(keys.waiters).execute()
    assert 0 < seconds * 1000 + rest // 1000 + left - entries[WAITER] <= 1_002  # a little longer than the waiter
    acquire("mutex", TOKEN[:-1] + b"7", wait=-6_000)
    assert set(redis.zrange(keys.waiters, 0, -1)) == {b"waits", WAITER}


def test_fencing_after_the_clock_was_set_back(redis, acquire, keys):
    """The fencing token grows by exactly one if the server's clock is behind the last one."""
    redis.set(keys.fence, 2**53 - 10)
    assert acquire("mutex", fencing=1)[1] == 2**53 - 9
    redis.delete(keys.lock)
    assert acquire("mutex", fencing=1)[1] == 2**53 - 8
    assert redis.get(keys.fence) == b"%d" % (2**53 - 8)


@pytest.mark.parametrize(
    ("value", "answer"), [(None, 0), (RESERVED, 0), (THEIRS, -1)], ids=["free", "reserved", "held"]
)
@pytest.mark.parametrize("periodic", [(), (1,)])
def test_extend_what_is_not_held(call, redis, keys, dump, value, answer, periodic):
    """A lock of another holder, a free and a reserved lock stay as they are."""
    if value:
        redis.set(keys.lock, value, px=5_000)
    state = dump()
    assert call("mutex_extend", (keys.lock,), TOKEN, 10_000, 1, *periodic) == answer
    assert dump() == state
    assert redis.pttl(keys.lock) <= 5_000


def test_extend_many(redis, call, keys, places):
    """Each lock with the right token is extended, and no other. With fencing, the last token is kept for a day."""
    others = places[1:]
    redis.set(keys.lock, VALUE, px=10_000)
    redis.set(keys.fence, 17, px=5_000)
    redis.set(others[0].lock, OTHER + b" x", px=10_000)
    assert call("mutex_extend", [each.lock for each in places], TOKEN, 30_000, 3) == -1
    assert call("mutex_extend", [each.lock for each in (keys, others[1])], TOKEN, 30_000, 2) == 0
    assert redis.pttl(keys.lock) > 25_000
    assert redis.pttl(keys.fence) <= 5_000
    assert redis.pttl(others[0].lock) <= 10_000
    assert redis.get(keys.lock) == VALUE
    assert not redis.exists(others[1].lock)
    redis.set(others[0].lock, VALUE)
    assert call("mutex_extend", (keys.lock, keys.fence, others[0].lock, others[0].fence), TOKEN, 40_000, 2) == 1
    assert redis.get(keys.fence) == b"17"
    assert redis.pttl(keys.fence) > DAY - 5_000


@pytest.mark.parametrize(("before", "after"), [(500_000, 500_000), (5_000, 10_000)], ids=["longer", "shorter"])
def test_extend_within_a_period(call, redis, keys, before, after):
    """A lock that is granted once in a period stays for at least the ttl, and never shorter than before."""
    redis.set(keys.lock, VALUE, px=before)
    assert call("mutex_extend", (keys.lock,), TOKEN, 10_000, 1, 1) == 1
    assert after - 5000 < redis.pttl(keys.lock) <= after


@pytest.mark.parametrize("by_force", [False, True], ids=["release", "by force"])
def test_release_reserves(redis, release, call, keys, dump, by_force):
    """A lock with waiters stays reserved for a tenth of a second, in which it counts as not held."""

    def free(digest=""):
        return call("force_release", keys.of_queue, digest) if by_force else release("mutex")

    redis.set(keys.lock, VALUE, px=10_000)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert free() == 1
    assert 0 < redis.pttl(keys.lock) <= 100
    redis.set(keys.lock, RESERVED)
    before = dump()
    assert free() == free("0" * 40) == 0
    assert dump() == before


def test_release_wakes_one(redis, release, keys):
    """One wake-up is written for a few seconds, and never two."""
    redis.zadd(keys.waiters, {b"waits": 9e15, b"waits too": 9e15})
    for _ in range(2):
        redis.set(keys.lock, VALUE, px=10_000)
        assert release("mutex") == 1
        assert redis.llen(keys.wake) == 1
        assert 0 < redis.pttl(keys.wake) <= 10_000
