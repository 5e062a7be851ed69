"""Handing a lock on to another process: mutex_hand_over.lua, timestamp_acquire.lua"""

import pytest

from tests.scripts.conftest import ANOTHER, OTHER, OWNER, RESERVED, TOKEN, VALUE, now

NEXT = b'{"host":"there"}'
STAMP = b"02000000000000"


@pytest.fixture(params=["mutex", "timestamp"])
def kind(request):
    return request.param


@pytest.fixture
def adopt(call, keys, kind):
    """`adopt()`: OTHER adopts the lock of TOKEN, which may be shared with older code."""
    if kind == "mutex":
        return lambda: call("mutex_hand_over", (keys.lock,), OTHER, NEXT, 10_000, 0, TOKEN, 1)
    where = keys.lock, keys.waiters, keys.fence
    return lambda: call("timestamp_acquire", where, OTHER, NEXT, 10_000, 0, 1, 0, TOKEN)


@pytest.fixture
def hold(redis, keys, kind):
    """`hold(token)`: let the lock be held by that token."""

    def run(token=TOKEN):
        if kind == "mutex":
            redis.set(keys.lock, token + b" " + OWNER, px=5_000)
        else:
            redis.set(keys.lock, STAMP, px=5_000)
            redis.hset(keys.fence, mapping={"value": STAMP, "token": token, "owner": OWNER})

    return run


def test_late_repetition(adopt, hold, redis, keys, kind):
    """A repeated request that arrives after an extension does not shorten the lease."""
    hold()
    assert adopt() > 1
    redis.pexpire(keys.lock, 60_000)
    assert adopt() > 1
    assert redis.pttl(keys.lock) > 30_000
    if kind == "timestamp":
        assert int(redis.get(keys.lock)) - now(redis) > 30_000
        assert redis.pttl(keys.fence) > 30_000


@pytest.mark.parametrize("state", ["free", "reserved", "another's", "older code's"])
def test_not_held(adopt, hold, redis, keys, dump, state):
    """A lock of another holder or of older code, and a free lock, stay as they are."""
    hold(ANOTHER)
    if state == "free":
        redis.delete(keys.lock)
    elif state != "another's":
        redis.set(keys.lock, RESERVED if state == "reserved" else b"2000000000000", px=5_000)
    before = dump()
    assert adopt()[0] == 0
    assert dump() == before


def test_all_or_none(redis, call, places, dump):
    """If one of several locks has another holder, none is adopted."""
    redis.set(places[0].lock, VALUE, px=5_000)
    redis.set(places[1].lock, ANOTHER + b" x", px=10000)
    before = dump()
    locks = [place.lock for place in places[:2]]
    refused, left, _, owner, which = call("mutex_hand_over", locks, OTHER, NEXT, b"10000", b"0", TOKEN, 2)
    assert (refused, owner, which) == (0, b"x", 2)
    assert 3000 < left <= 10000
    assert dump() == before
