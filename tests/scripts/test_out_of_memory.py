"""A server that is out of memory grants nothing, and holders extend, release and wake."""

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, RESERVED, TOKEN, WAITER

KEEPING = ["mutex", "fair", "rlock", "read", "timestamp"]  # one for each release script


def test_refused_before_anything_is_written(acquire, dump, full):
    with full(), pytest.raises(ResponseError, match="command not allowed"):
        acquire("mutex", fencing=1)
    assert dump() == {}


def test_wait(redis, acquire, keys, full):
    """A client waits for a held lock, and acquires it."""
    redis.set(keys.lock, OTHER, px=9_000)
    with full():
        assert acquire("mutex", wait=6_000)[0] == 0
        assert redis.zrange(keys.waiters, 0, -1) == [WAITER]
        assert 0 < redis.pttl(keys.waiters) <= 7_000
        redis.delete(keys.lock)
        assert acquire("mutex", TOKEN[:-1] + b"1", wait=-6_000) > 0


@pytest.mark.parametrize("kind", KEEPING)
def test_extend_and_keep(acquire, extend, release, full, kind):
    """A lock is extended, and a release with `keep` keeps it."""
    acquire(kind)
    with full():
        assert extend(kind, 20_000) == 1
        assert release(kind, keep=5_000) == 1
    assert 0 < acquire("write" if kind == "read" else kind, OTHER)[1] <= 6_000


def test_release_reserves_and_wakes(redis, acquire, release, keys, dump, full):
    """Redis lets a script go on after its first write."""
    acquire("mutex")
    redis.zadd(keys.waiters, {b"waits": 9e15})
    with full():
        assert release("mutex") == 1
    assert dump() == {keys.lock: RESERVED, keys.waiters: [b"waits"], keys.wake: [b"1"]}
