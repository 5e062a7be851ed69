"""mutex_acquire.lua"""

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, WAITER

DAY = 86_400_000


@pytest.fixture
def acquire(call, keys):
    """`acquire(token, ttl, fencing, wait)`"""

    def run(token=TOKEN, ttl=10_000, fencing=0, wait=0):
        where = (*keys.of_mutex, keys.fence) if fencing else keys.of_mutex
        return call("mutex_acquire", where, token, OWNER, ttl, fencing, wait)

    return run


def micros(redis):
    seconds, rest = redis.time()
    return seconds * 1_000_000 + rest


def test_late_repetition(redis, acquire, keys):
    """A repeated request that arrives after an extension does not shorten the lease."""
    acquire(ttl=60_000)
    assert acquire(ttl=1_000) > 0
    assert redis.pttl(keys.lock) > 30_000


def test_held_by_another_program(redis, acquire, keys):
    """A lock of another program is refused without an owner, because its value is its secret."""
    redis.set(keys.lock, b"0815")
    assert acquire()[:2] == [0, -1]
    assert acquire()[3] == b""
    assert redis.get(keys.lock) == b"0815"


def test_value_that_begins_with_the_token(redis, acquire, keys):
    """A value that begins with a part of the token belongs to another holder."""
    redis.set(keys.lock, TOKEN[:-1] + b"1 x", px=9_000)
    assert acquire()[0] == 0


def test_newcomers_yield(redis, acquire, keys):
    """A newcomer with time to wait is listed behind the waiters of a reserved lock, and gets it later."""
    redis.set(keys.lock, RESERVED, px=60_000)
    redis.zadd(keys.waiters, {b"woken": micros(redis) // 1000 + 5_000})
    refused, left, _, owner, _ = acquire(wait=6_000)
    assert (refused, owner) == (0, b"")
    assert 30_000 < left <= 60_000
    assert redis.get(keys.lock) == RESERVED
    assert set(redis.zrange(keys.waiters, 0, -1)) == {b"woken", WAITER}
    assert acquire(TOKEN[:-1] + b"1", wait=-6_000) > 0
    assert 0 < redis.pttl(keys.lock) <= 10_000


def test_a_dead_waiter_reserves_no_lock_for_ever(redis, acquire, keys, call):
    """A newcomer to a reserved lock removes expired entries. Otherwise each release would reserve the lock again."""
    redis.set(keys.lock, RESERVED, px=60_000)
    redis.zadd(keys.waiters, {b"lapsed": micros(redis) // 1000 - 1})
    assert acquire(wait=6_000)[0] == 0
    assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
    again = TOKEN[:-1] + b"1"
    assert acquire(again, wait=-6_000) > 0
    assert call("mutex_release", keys.of_mutex, again, 0) == 1
    assert not redis.exists(keys.lock)


def test_newcomers_do_not_yield(redis, acquire, keys):
    """A newcomer takes a reserved lock if it can't wait, and any other free lock, even if there are waiters."""
    redis.set(keys.lock, RESERVED, px=60_000)
    redis.zadd(keys.waiters, {b"woken": micros(redis) // 1000 + 5_000})
    assert acquire(wait=0) > 0
    assert 0 < redis.pttl(keys.lock) <= 10_000
    redis.delete(keys.lock)
    assert acquire(OTHER, wait=6_000) > 0


def test_queues(redis, acquire, keys):
    """A waiter is listed by its acquisition id for the given time, and expired entries are removed."""
    redis.set(keys.lock, OTHER, px=9_000)
    redis.zadd(keys.waiters, {b"lapsed": micros(redis) // 1000 - 1, b"waits": micros(redis) // 1000 + 5_000})
    before = micros(redis) // 1000
    assert acquire(wait=6_000)[0] == 0
    entries = dict(redis.zrange(keys.waiters, 0, -1, withscores=True))
    assert set(entries) == {b"lapsed", b"waits", WAITER}
    assert before + 6_000 <= entries[WAITER] <= micros(redis) // 1000 + 6_000
    (seconds, rest), left = redis.pipeline().time().pttl(keys.waiters).execute()
    assert 0 < seconds * 1000 + rest // 1000 + left - entries[WAITER] <= 1_002  # a little longer than the waiter
    acquire(TOKEN[:-1] + b"7", wait=-6_000)
    assert set(redis.zrange(keys.waiters, 0, -1)) == {b"waits", WAITER}


def test_fencing_after_the_clock_was_set_back(redis, acquire, keys):
    """The fencing token grows by exactly one if the server's clock is behind the last one."""
    redis.set(keys.fence, 2**53 - 10)
    assert acquire(fencing=1)[1] == 2**53 - 9
    redis.delete(keys.lock)
    assert acquire(fencing=1)[1] == 2**53 - 8
    assert redis.get(keys.fence) == b"%d" % (2**53 - 8)


@pytest.mark.parametrize("kind", ["rpush", "sadd", "hset", "zadd"])
def test_wrong_type(redis, acquire, keys, dump, kind):
    """A key of another type raises an error and stays."""
    redis.execute_command(kind, keys.lock, *{"hset": ["a", "b"], "zadd": ["1", "a"]}.get(kind, ["a"]))
    before = redis.dump(keys.lock)
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        acquire(wait=6_000)
    assert redis.dump(keys.lock) == before
    assert redis.keys() == [keys.lock]


def test_out_of_memory(acquire, dump, full):
    """A server that is out of memory refuses before anything is written."""
    with full(), pytest.raises(ResponseError, match="command not allowed"):
        acquire(fencing=1)
    assert dump() == {}


def test_wait_out_of_memory(redis, acquire, keys, full):
    """A client waits for a held lock, and acquires it, on a server that is out of memory."""
    redis.set(keys.lock, OTHER, px=9_000)
    with full():
        assert acquire(wait=6_000)[0] == 0
        assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
        assert 0 < redis.pttl(keys.waiters) <= 7_000
        redis.delete(keys.lock)
        assert acquire(TOKEN[:-1] + b"1", wait=-6_000) > 0
