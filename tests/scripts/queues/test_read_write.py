"""rw_acquire.lua, shared_release.lua, and the wake-up of their queue by other scripts"""

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, TOKEN, VALUE, now
from tests.scripts.queues.conftest import ANOTHER, lapse


@pytest.mark.parametrize("mode", ["r", "w"])
def test_late_repetition(rw, redis, keys, mode):
    """A repeated request that arrives after an extension does not shorten the lease."""
    rw(mode, ttl=60_000)
    assert rw(mode, ttl=1_000) > 0
    assert redis.pttl(keys.lock) > 30_000
    [share] = redis.hvals(keys.lock)
    assert int(share.split(b"@")[1].split()[0]) - now(redis) > 30_000


def test_ended_shares(redis, rw, keys):
    """An expired share neither blocks others nor gives rights to its holder."""
    redis.hset(keys.lock, OTHER + b" x", f"rwlock@{now(redis) - 1} w you")
    redis.hset(keys.lock, ANOTHER + b" x", f"rwlock@{now(redis) - 1} r a")
    assert rw("w") > 0
    assert list(redis.hgetall(keys.lock)) == [VALUE]


def test_queued_writer_whose_entry_has_expired(redis, rw, keys):
    rw("r")
    rw("w", OTHER, wait=60_000)
    lapse(redis, keys, OTHER)
    assert rw("r", ANOTHER) > 0


@pytest.mark.parametrize(
    ("waiting", "expected"), [("rrwr", "ab"), ("wrw", "a"), ("rrr", "abc"), ("", "")], ids=str.__str__
)
def test_writer_wakes(rw, release, woken, waiting, expected):
    """The end of a write wakes all readers up to the first writer, or the first writer."""
    rw("w", b"z" * 24)
    for mode, letter in zip(waiting, "abcd", strict=False):
        rw(mode, letter.encode() * 24, wait=60_000)
    assert release("shared_release", b"z" * 24) == 1
    assert woken() == expected


def test_writers_without_order(rw, call, keys):
    """With order=1 readers queue behind writers, and nothing else is ordered."""
    rw("w", b"d" * 24)
    rw("r", TOKEN, wait=60_000, order=1)
    rw("w", OTHER, wait=60_000, order=1)
    rw("w", ANOTHER, wait=60_000, order=1)
    rw("r", b"e" * 24, wait=60_000, order=1)
    assert rw("w", b"d" * 24, holder="d", order=1) > 0
    call("shared_extend", (keys.lock,), 1, 0, b"d" * 24)
    while (granted := rw("w", ANOTHER, wait=-60_000, order=1)) and isinstance(granted, list):
        assert granted[1] <= 1
    call("shared_extend", (keys.lock,), 1, 0, ANOTHER)
    while isinstance(refused := rw("r", b"e" * 24, wait=-60_000, order=1), list) and refused[1] <= 1:
        pass
    assert refused[0] == 0
    assert rw("r", TOKEN, wait=-60_000, order=1) > 0


def test_restored_shares_do_not_queue(rw):
    rw("r", b"d" * 24)
    rw("w", OTHER, wait=60_000)
    assert rw("r", TOKEN, order=0) > 0
    assert rw("w", ANOTHER, order=0)[0] == 0


def test_restored_shares_in_any_order(rw):
    rw("r", TOKEN, holder="me", order=0)
    assert rw("w", OTHER, holder="me", order=0) > 0


def test_keep_out_of_memory(rw, release, full):
    rw("r", TOKEN)
    with full():
        assert release("shared_release", TOKEN, 5_000) == 1
    assert 0 < rw("w", OTHER)[1] <= 5_000


def test_other_kinds(redis, rw, keys, dump):
    """A lock of another kind and a key of another type raise an error and stay."""
    for value in ({VALUE: f"semaphore@{now(redis) + 9_000} "}, {VALUE: f"rlock@{now(redis) + 9_000} me"}, {b"a": b"x"}):
        redis.delete(keys.lock)
        redis.hset(keys.lock, mapping=value)
        before = dump()
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            rw("r", OTHER)
        assert dump() == before
