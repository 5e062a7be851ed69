"""describe.lua"""

from hashlib import sha1

import pytest

from tests.scripts.conftest import RESERVED, VALUE


@pytest.fixture
def describe(call, keys):
    """`describe(queue)`"""
    return lambda queue=0: call("describe", (keys.lock, keys.waiters), queue)


def test_nothing(redis, describe, keys, dump):
    """A free lock has no description, even while it is reserved for a waiter."""
    assert describe() is None
    assert dump() == {}
    redis.set(keys.lock, RESERVED)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert describe(1) is None


def test_mutex(redis, describe, keys, dump):
    """The value and the remaining lease in ms, or -1 without an end. Nothing changes."""
    for ttl, lefts in (9_000, range(1, 9_001)), (None, [-1]):
        redis.set(keys.lock, VALUE, px=ttl)
        before = dump()
        value, left = describe()
        assert (value, left in lefts, dump()) == (VALUE, True, before)


def test_hash_with_waiters(redis, describe, keys):
    """The holder's digest, and the number of waiters whose entry has not expired, or these in order of their expiry."""
    now = redis.time()[0] * 1000
    redis.hset(keys.lock, "holder", 2)
    redis.zadd(keys.waiters, {b"lapsed": now - 1000, b"second": now + 60_000, b"first": now + 50_000})
    digest = sha1(b"holder", usedforsecurity=False).hexdigest().encode()
    assert describe() == [b"hash", [b"holder", b"2"], -1, 2, digest]
    assert describe(1)[5] == [b"first", b"second"]
    assert redis.zcard(keys.waiters) == 3
