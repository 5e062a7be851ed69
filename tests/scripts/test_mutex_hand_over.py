"""Handing a lock on to another process: mutex_hand_over, timestamp_acquire."""

import pytest

from django_redlock.core.keys import keys_for
from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, VALUE

NEXT = b'{"host":"there"}'
FOREIGN = b"c" * 16 + b"00000000"
STAMP = b"02000000000000"
UNIT = b"1", b"0"  # milliseconds, no skew


@pytest.fixture
def adopt(call, keys):
    """`adopt()`: OTHER adopts the lock of TOKEN."""

    def run(fencing=b"0"):
        where = (keys.lock, keys.fence)[: 1 + (fencing == b"1")]
        return call("mutex_hand_over", where, OTHER, NEXT, b"10000", fencing, TOKEN, 1)

    return run


@pytest.fixture
def adopt_stamp(call, keys):
    """`adopt_stamp()`: OTHER adopts a lock that is shared with older code."""

    def run():
        return call(
            "timestamp_acquire", (keys.lock, keys.waiters, keys.fence), OTHER, NEXT, b"10000", b"0", *UNIT, TOKEN
        )

    return run


def test_adopted(adopt, redis, keys, dump):
    """The successor holds the lock for its ttl, and a repeated request is granted again."""
    redis.set(keys.lock, VALUE, px=5_000)
    before = redis.time()
    assert adopt() >= before[0] * 10**6 + before[1]
    assert redis.get(keys.lock) == OTHER + b" " + NEXT
    assert 5000 < redis.pttl(keys.lock) <= 10000
    state = dump()
    assert adopt() > 1
    assert dump() == state


@pytest.mark.parametrize("value", [None, RESERVED, FOREIGN + b" x"], ids=["free", "reserved", "another's"])
def test_not_held(adopt, redis, keys, dump, value):
    """A lock of another holder, and a free lock, stay as they are."""
    if value:
        redis.set(keys.lock, value, px=10000)
    state = dump()
    refused, left, time, owner, which = adopt()
    held = value not in (None, RESERVED)
    assert (refused, owner, which) == (0, b"x" if held else b"", 1)
    assert (3000 < left <= 10000) if held else left == 0
    assert time > 1
    assert dump() == state


def test_all_or_none(redis, call, keys, dump):
    """If one of several locks has another holder, none is adopted."""
    second = keys_for(b"redlock", b"stock:43")
    redis.set(keys.lock, VALUE, px=5_000)
    redis.set(second.lock, FOREIGN + b" x", px=10000)
    before = dump()
    places = keys.lock, second.lock
    refused, *_, which = call("mutex_hand_over", places, OTHER, NEXT, b"10000", b"0", TOKEN, 2)
    assert (refused, which) == (0, 2)
    assert dump() == before


def test_timestamp_adopted(adopt_stamp, redis, keys):
    """Older code sees a later end, and the successor is the holder; a repeated request is granted again."""
    redis.set(keys.lock, STAMP, px=5_000)
    redis.hset(keys.fence, mapping={"value": STAMP, "token": TOKEN, "owner": OWNER})
    for _ in range(2):
        assert adopt_stamp() > 1
        value = redis.get(keys.lock)
        assert redis.hgetall(keys.fence) == {b"value": value, b"token": OTHER, b"owner": NEXT}
        assert 5000 < redis.pttl(keys.lock) <= 10000


@pytest.mark.parametrize("kind", ["multi", "stamp"])
def test_late_repetition(adopt, adopt_stamp, redis, keys, kind):
    """A repeated request that arrives after an extension does not shorten the lease."""
    redis.set(keys.lock, VALUE if kind == "multi" else STAMP, px=5_000)
    if kind == "stamp":
        redis.hset(keys.fence, mapping={"value": STAMP, "token": TOKEN, "owner": OWNER})
    repeat = adopt if kind == "multi" else adopt_stamp
    assert repeat() > 1
    redis.pexpire(keys.lock, 60_000)
    assert repeat() > 1
    assert redis.pttl(keys.lock) > 30_000
    if kind == "stamp":
        assert int(redis.get(keys.lock)) - int(redis.time()[0]) * 1000 > 30_000
        assert redis.pttl(keys.fence) > 30_000


@pytest.mark.parametrize("value", [None, STAMP, b"2000000000000"], ids=["free", "another's", "older code's"])
def test_timestamp_not_held(adopt_stamp, redis, keys, dump, value):
    """A lock of another holder or of older code, and a free lock, stay as they are."""
    redis.hset(keys.fence, mapping={"value": STAMP, "token": FOREIGN, "owner": OWNER})
    if value:
        redis.set(keys.lock, value, px=10000)
    state = dump()
    assert adopt_stamp()[0] == 0
    assert dump() == state
