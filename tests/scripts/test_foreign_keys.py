"""A key that is not a lock, or a lock of another kind, is an error and stays as it is."""

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import KINDS, SHARED, TOKEN, VALUE, now

VALUES = {
    "list": lambda redis, key: redis.rpush(key, "a"),
    "set": lambda redis, key: redis.sadd(key, "a"),
    "zset": lambda redis, key: redis.zadd(key, {"a": 1}),
    "hash": lambda redis, key: redis.hset(key, "a", "celery record"),
    "string": lambda redis, key: redis.set(key, VALUE),
    **{
        name: lambda redis, key, name=name: redis.hset(key, VALUE, f"{name}@{now(redis) + 9_000} me")
        for name in ("rlock", "semaphore", "rwlock")
    },
}
OWN = {"read": "rwlock", "write": "rwlock", "rlock": "rlock", "semaphore": "semaphore"}


@pytest.mark.parametrize("kind", KINDS)
def test_acquire(acquire, redis, keys, kind):
    for name, put in VALUES.items():
        if name == OWN.get(kind, "string") and kind != "timestamp":
            continue
        redis.flushall()
        put(redis, keys.lock)
        before = redis.dump(keys.lock)
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            acquire(kind, wait=6_000)
        assert (redis.keys(), redis.dump(keys.lock)) == ([keys.lock], before), name


def test_extend_and_release(extend, release, redis, keys):
    """A key of another type is not held for a release, and an error for an extension."""
    redis.rpush(keys.lock, "a")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        extend("mutex", 1_000)
    assert release("mutex") == 0
    assert redis.lrange(keys.lock, 0, -1) == [b"a"]


@pytest.mark.parametrize("kind", ["mutex", *SHARED])
def test_release_by_the_beginning_of_a_token(acquire, release, dump, kind):
    """A release by the acquisition id alone releases the grant of any attempt."""
    acquire(kind)
    assert release(kind, TOKEN[:16]) == 1
    assert dump() == {}
