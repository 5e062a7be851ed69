"""A request that arrives twice, the second time after an extension, shortens no lease."""

import re

import pytest

from tests.scripts.conftest import KINDS, now


@pytest.mark.parametrize("kind", KINDS)
def test_late_repetition(acquire, redis, keys, places, kind):
    """The key, each share's own end and the timestamp that older code reads last as long as before."""
    acquire(kind, ttl=60_000)
    repeated = acquire(kind, ttl=1_000)
    assert kind == "striped" or repeated > 0
    held = places if kind == "multi" else [keys]
    assert [redis.pttl(each.lock) > 30_000 for each in places] == [each in held for each in places]
    if redis.type(keys.lock) == b"hash":
        [share] = redis.hvals(keys.lock)
        assert int(re.search(rb"@(\d+)", share)[1]) - now(redis) > 30_000
    if kind == "timestamp":
        assert int(redis.get(keys.lock)) * 1000 - now(redis) > 30_000
        assert redis.pttl(keys.fence) > 30_000
