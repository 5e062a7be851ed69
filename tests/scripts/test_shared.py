"""shared_acquire.lua, shared_extend.lua and shared_release.lua"""

import re

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, OWNER, TOKEN, VALUE, WAITER, now

ANOTHER = b"c" * 16 + b"00000000"
DAY = 86_400_000


@pytest.fixture
def acquire(call, keys):
    """`acquire(token, ttl, fencing, wait, kind, limit, holder)`: run shared_acquire."""

    def run(token=TOKEN, ttl=10_000, fencing=0, wait=0, kind="rlock", limit=1, holder="me"):
        where = (*keys.of_mutex, keys.fence)[: 3 + fencing]
        return call("shared_acquire", where, token, OWNER, ttl, fencing, wait, kind, limit, holder)

    return run


@pytest.fixture
def extend(call, keys):
    """`extend(ttl, token, fencing)`: run shared_extend."""
    return lambda ttl, token=TOKEN, fencing=0: call("shared_extend", (keys.lock, keys.fence)[: 1 + fencing], token, ttl)


@pytest.fixture
def release(call, keys):
    """`release(keep, token)`: run shared_release."""
    return lambda keep=0, token=TOKEN: call("shared_release", keys.of_mutex, token, keep)


def ends(redis, keys):
    """Return the remaining time of each share, by the first letter of its token."""
    shares = redis.hgetall(keys.lock)
    return {key[:1].decode(): int(re.search(rb"@(\d+)", value)[1]) - now(redis) for key, value in shares.items()}


def test_free(redis, acquire, keys, dump):
    """A free lock is granted as a share with its end and holder, and the reply is the server's time in µs."""
    before = now(redis)
    assert before <= acquire() // 1000 <= now(redis)
    [(share, value)] = redis.hgetall(keys.lock).items()
    assert share == VALUE
    assert re.fullmatch(rb"rlock@\d{13} me", value)
    assert set(dump()) == {keys.lock}
    assert 3_000 < redis.pttl(keys.lock) <= 10_000
    assert 3_000 < ends(redis, keys)["a"] <= 10_000


def test_repeated(redis, acquire, keys):
    """The same token is granted again as one share with a new lease."""
    acquire(ttl=5_000)
    acquire(ttl=10_000)
    assert list(ends(redis, keys)) == ["a"]
    assert ends(redis, keys)["a"] > 5_000


@pytest.mark.parametrize("kind", ["rlock", "semaphore"])
def test_late_repetition(redis, acquire, keys, kind):
    """A repeated request that arrives after an extension does not shorten the lease."""
    acquire(ttl=60_000, kind=kind)
    assert acquire(ttl=1_000, kind=kind) > 0
    assert redis.pttl(keys.lock) > 30_000
    assert ends(redis, keys)["a"] > 30_000


def test_of_the_same_holder(redis, acquire, keys):
    """Another share of the same holder is granted, and the key lives as long as the longest."""
    acquire(ttl=10_000)
    assert acquire(OTHER, ttl=2_000) > 0
    assert set(ends(redis, keys)) == {"a", "b"}
    assert redis.pttl(keys.lock) > 3_000


def test_of_another_holder(acquire, dump):
    """Another holder is refused with the longest remaining lease and its owner, and nothing changes."""
    acquire(ttl=10_000)
    acquire(OTHER, ttl=5_000)
    before = dump()
    refused, left, _, owner = acquire(ANOTHER, holder="you")
    assert (refused, owner) == (0, OWNER)
    assert 5_000 < left <= 10_000
    assert dump() == before


def test_ended_shares_are_dropped(redis, acquire, keys, dump):
    """An expired share does not block other holders."""
    redis.hset(keys.lock, OTHER + b" x", f"rlock@{now(redis) - 1} you")
    redis.pexpire(keys.lock, 60_000)
    assert acquire() > 0
    assert list(dump()[keys.lock]) == [VALUE]
    assert redis.pttl(keys.lock) <= 10_000


def test_permits(redis, acquire, keys):
    """A semaphore has `limit` shares, and a refusal has the shortest remaining lease."""
    permit = {"kind": "semaphore", "limit": 2, "holder": ""}
    assert acquire(ttl=5_000, **permit) > 0
    assert acquire(OTHER, **permit) > 0
    refused, left, _, _ = acquire(ANOTHER, **permit)
    assert refused == 0
    assert 0 < left <= 5_000
    assert acquire(**permit) > 0  # it has one already
    assert set(ends(redis, keys)) == {"a", "b"}


def test_a_grant_wakes_the_next_waiter(redis, acquire, keys):
    """A grant of one of several permits wakes another waiter if permits are left."""
    permit = {"kind": "semaphore", "limit": 2, "holder": ""}
    redis.zadd(keys.waiters, {b"waits": 9e15})
    acquire(**permit)
    assert redis.llen(keys.wake) == 1
    redis.delete(keys.wake)
    acquire(OTHER, **permit)
    assert redis.exists(keys.wake) == 0


def test_queue(redis, acquire, release, keys):
    """A refused waiter is listed until it is granted or gives up."""
    acquire(OTHER, holder="you")
    acquire(wait=6_000)
    assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
    acquire(wait=-1)
    assert redis.exists(keys.waiters) == 0
    acquire(wait=6_000)
    release(token=OTHER)
    assert acquire(wait=-6_000) > 0
    assert redis.exists(keys.waiters) == 0


def test_fencing(redis, acquire, keys):
    """The fencing token grows with each grant, even above the server's clock, and is stored for a day."""
    redis.set(keys.fence, 9 * 10**15)
    assert acquire(fencing=1)[:2] == [1, 9 * 10**15 + 1]
    assert acquire(OTHER, fencing=1)[1] == 9 * 10**15 + 2
    assert redis.pttl(keys.fence) > DAY - 5_000


@pytest.mark.parametrize("ttl", [5_000, 20_000])
def test_extend(redis, acquire, extend, keys, ttl):
    """One share's lease is replaced, and the others stay."""
    acquire()
    acquire(OTHER)
    assert extend(ttl) == 1
    assert ttl - 5_000 < ends(redis, keys)["a"] <= ttl
    assert 3_000 < ends(redis, keys)["b"] <= 10_000
    assert max(ttl, 10_000) - 5_000 < redis.pttl(keys.lock) <= max(ttl, 10_000)


def test_extend_nothing(redis, acquire, extend, keys):
    """A missing or expired share is not created by an extension."""
    assert extend(10_000) == 0
    acquire(OTHER)
    redis.hset(keys.lock, VALUE, f"rlock@{now(redis) - 1} me")
    assert extend(10_000) == 0
    assert ends(redis, keys)["a"] < 0


def test_release(redis, acquire, release, keys, dump):
    """A share is released once, and the last one removes the key."""
    acquire(ttl=20_000)
    acquire(OTHER)
    assert release() == 1
    assert release() == 0
    assert redis.pttl(keys.lock) <= 10_000
    assert release(token=OTHER) == 1
    assert dump() == {}


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


def test_release_wakes_when_it_is_free(redis, acquire, release, keys):
    """The release of the last share of an rlock wakes one waiter."""
    acquire()
    acquire(OTHER)
    redis.zadd(keys.waiters, {b"waits": 9e15, b"waits too": 9e15})
    release()
    assert redis.exists(keys.wake) == 0
    release(token=OTHER)
    assert redis.llen(keys.wake) == 1
    assert 0 < redis.pttl(keys.wake) <= 10_000


def test_keep(redis, acquire, release, keys):
    """With `keep` the share stays for that time without a holder, and its former holder is refused, too."""
    acquire()
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert release(5_000) == 1
    assert 0 < redis.pttl(keys.lock) <= 5_000
    assert redis.llen(keys.wake) == 1
    assert acquire(OTHER)[0] == 0


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


def test_describe_leaves_out_what_has_ended(redis, acquire, call, keys):
    """describe leaves out expired shares."""
    acquire(ttl=60_000)
    redis.hset(keys.lock, OTHER + b" x", f"rlock@{now(redis) - 1} me")
    [share, _] = call("describe", (keys.lock, keys.waiters), 0)[1]
    assert share == VALUE


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
