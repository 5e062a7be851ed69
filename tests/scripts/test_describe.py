"""describe.lua"""

from hashlib import sha1

import pytest

from tests.scripts.conftest import RESERVED, VALUE

KINDS = {
    "string": lambda redis, key: redis.set(key, VALUE, px=9_000),
    "hash": lambda redis, key: redis.hset(key, "holder", 2) and redis.pexpire(key, 9_000),
}
VALUES = {"string": VALUE, "hash": [b"holder", b"2"]}
HOLDERS = {"string": VALUE, "hash": b"holder"}


@pytest.fixture(params=KINDS)
def kind(request, redis, keys):
    """A held lock of that kind."""
    KINDS[request.param](redis, keys.lock)
    return request.param


@pytest.fixture
def describe(call, keys):
    """`describe(queue)`"""
    return lambda queue=0: call("describe", (keys.lock, keys.waiters), queue)


def test_describe_nothing(redis, describe, keys, dump):
    """A free lock has no description, even while it is reserved for a waiter."""
    assert describe() is None
    assert dump() == {}
    redis.set(keys.lock, RESERVED)
    redis.zadd(keys.waiters, {b"waits": 9e15})
    assert describe(1) is None


def test_describe(kind, describe, dump):
    """describe returns type, value, remaining lease, waiters and a digest of the holder, and changes nothing."""
    before = dump()
    if kind == "string":  # the value says all
        value, left = describe()
    else:
        type_, value, left, waiters, digest = describe()
        assert (type_.decode(), waiters) == (kind, 0)
        assert digest.decode() == sha1(HOLDERS[kind], usedforsecurity=False).hexdigest()
    assert value == VALUES[kind]
    assert 0 < left <= 9_000
    assert dump() == before


def test_describe_without_an_end(redis, describe, keys):
    """A lease without an end has the remaining time -1."""
    redis.set(keys.lock, "0815")
    assert describe() == [b"0815", -1]


def test_describe_waiters(kind, redis, describe, keys):
    """Waiters whose entry has expired are not counted; entries are returned on demand, in order of their expiry."""
    now = redis.time()[0] * 1000
    redis.zadd(keys.waiters, {b"lapsed": now - 1000, b"second": now + 60_000, b"first": now + 50_000})
    assert describe()[3] == 2
    assert len(describe()) == 5
    assert describe(1)[5] == [b"first", b"second"]
    assert redis.zcard(keys.waiters) == 3
