"""Locks that are granted once in a period: what mutex_extend and mutex_release do."""

import pytest

from tests.scripts.conftest import OTHER, OWNER, RESERVED, TOKEN, VALUE

DONE = b"done " + OWNER


@pytest.mark.parametrize(("before", "after"), [(500_000, 500_000), (5_000, 10_000)], ids=["longer", "shorter"])
def test_extends(call, redis, keys, before, after):
    """The key stays for at least the ttl, and never shorter than before."""
    redis.set(keys.lock, VALUE, px=before)
    assert call("mutex_extend", (keys.lock,), b"10000", b"1", TOKEN) == 1
    assert after - 5000 < redis.pttl(keys.lock) <= after


@pytest.mark.parametrize(
    ("value", "answer"),
    [(None, 0), (RESERVED, 0), (OTHER + b" " + OWNER, -1)],
    ids=["free", "reserved", "another's"],
)
def test_not_held(call, redis, keys, dump, value, answer):
    """A lock of another holder, and a free lock, stay as they are."""
    if value:
        redis.set(keys.lock, value)
    state = dump()
    assert call("mutex_extend", (keys.lock,), b"10000", b"1", TOKEN) == answer
    assert dump() == state


def test_released_out_of_memory(call, redis, keys, full):
    """A release that keeps the key works on a server that is out of memory."""
    redis.set(keys.lock, VALUE, px=5_000)
    with full():
        assert call("mutex_release", keys.of_mutex, TOKEN, b"10000") == 1
    assert redis.get(keys.lock) == DONE
