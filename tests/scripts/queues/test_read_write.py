"""rw_acquire.lua, shared_release.lua, and the wake-up of their queue by other scripts"""

import re

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, OWNER, TOKEN, VALUE, now
from tests.scripts.queues.conftest import ANOTHER, lapse

DAY = 86_400_000


def test_read(redis, rw, keys):
    """Many readers hold shares, each with its end, mode and holder."""
    before = now(redis)
    assert before <= rw("r") // 1000 <= now(redis)
    assert rw("r", OTHER, ttl=20_000) > 0
    shares = redis.hgetall(keys.lock)
    assert set(shares) == {VALUE, OTHER + b" " + OWNER}
    assert re.fullmatch(rb"rwlock@\d{13} r a", shares[VALUE])
    assert 15_000 < redis.pttl(keys.lock) <= 20_000


def test_write(rw, dump):
    """A writer is refused while others read, with the longest remaining lease and an owner."""
    rw("r", ttl=5_000)
    rw("r", OTHER, ttl=10_000)
    before = dump()
    refused, left, _, owner = rw("w", ANOTHER)
    assert (refused, owner, 5_000 < left <= 10_000) == (0, OWNER, True)
    assert dump() == before


@pytest.mark.parametrize("mode", ["r", "w"])
def test_write_excludes(rw, mode):
    """While a writer holds the lock other readers and writers are refused."""
    assert rw("w") > 0
    assert rw("w") > 0  # the same token
    assert rw(mode, OTHER)[0] == 0


def test_reentrance(rw, redis, keys):
    """A holder is granted again with another token; a writer may read, and a reader may not write."""
    rw("w", TOKEN, holder="me")
    assert rw("w", OTHER, holder="me") > 0
    assert rw("r", ANOTHER, holder="me") > 0
    redis.delete(keys.lock)
    rw("r", TOKEN, holder="me")
    assert rw("r", OTHER, holder="me") > 0
    with pytest.raises(ResponseError, match="UPGRADE"):
        rw("w", ANOTHER, holder="me")
    with pytest.raises(ResponseError, match="UPGRADE"):
        rw("w", ANOTHER, wait=60_000, holder="me")
    assert rw("w", ANOTHER, holder="you")[0] == 0


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


def test_queued_writer(rw, line):
    """A queued writer blocks new readers, but not readers that hold the lock already."""
    rw("r")
    rw("w", OTHER, wait=60_000)
    refused, left, _, _ = rw("r", ANOTHER, wait=60_000)
    assert (refused, 0 < left <= 60_000, line()) == (0, True, ["wb", "rc"])
    assert rw("r", b"d" * 24, holder="a") > 0


def test_queued_writer_whose_entry_has_expired(redis, rw, keys):
    """A queued writer whose entry has expired blocks no readers."""
    rw("r")
    rw("w", OTHER, wait=60_000)
    lapse(redis, keys, OTHER)
    assert rw("r", ANOTHER) > 0


def test_queued_readers(rw, release):
    """Queued readers don't block each other, and a writer does not block readers that queued before it."""
    rw("w", b"d" * 24)
    rw("r", TOKEN, wait=60_000)
    rw("r", OTHER, wait=60_000)
    rw("w", ANOTHER, wait=60_000)
    release("shared_release", b"d" * 24)
    assert rw("w", ANOTHER, wait=-60_000)[0] == 0
    assert rw("r", OTHER, wait=-60_000) > 0
    assert rw("r", TOKEN, wait=-60_000) > 0


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


def test_last_reader_wakes(rw, release, woken):
    """The end of the last read wakes a writer."""
    rw("r", TOKEN)
    rw("r", OTHER)
    rw("w", ANOTHER, wait=60_000)
    release("shared_release", TOKEN)
    assert woken() == ""
    release("shared_release", OTHER)
    assert woken() == "c"


def test_downgrade_wakes_readers(rw, release, woken):
    """A writer that goes on as a reader wakes readers and no writer."""
    rw("w", TOKEN, holder="me")
    rw("r", b"d" * 24, holder="me")
    rw("r", OTHER, wait=60_000)
    release("shared_release", TOKEN)
    assert woken() == "b"
    rw("r", OTHER, wait=-1)
    rw("w", ANOTHER, wait=60_000)
    release("shared_release", OTHER)
    assert woken() == ""


def test_writers_without_order(rw, call, keys):
    """With order=1 readers queue behind writers, and nothing else is ordered."""
    rw("w", b"d" * 24)
    rw("r", TOKEN, wait=60_000, order=1)
    rw("w", OTHER, wait=60_000, order=1)
    rw("w", ANOTHER, wait=60_000, order=1)
    rw("r", b"e" * 24, wait=60_000, order=1)
    assert rw("w", b"d" * 24, holder="d", order=1) > 0
    call("shared_extend", (keys.lock,), b"d" * 24, 1)
    while (granted := rw("w", ANOTHER, wait=-60_000, order=1)) and isinstance(granted, list):
        assert granted[1] <= 1
    call("shared_extend", (keys.lock,), ANOTHER, 1)
    while isinstance(refused := rw("r", b"e" * 24, wait=-60_000, order=1), list) and refused[1] <= 1:
        pass
    assert refused[0] == 0
    assert rw("r", TOKEN, wait=-60_000, order=1) > 0


def test_restored_shares_do_not_queue(rw):
    """A holder that restores its shares does not queue, and may restore a read share before the write share."""
    rw("r", b"d" * 24)
    rw("w", OTHER, wait=60_000)
    assert rw("r", TOKEN, order=0) > 0
    assert rw("w", ANOTHER, order=0)[0] == 0


def test_restored_shares_in_any_order(rw):
    """Shares that a holder had together may be restored in any order."""
    rw("r", TOKEN, holder="me", order=0)
    assert rw("w", OTHER, holder="me", order=0) > 0


def test_release(rw, release, dump, call, keys):
    """A share is released once, the last one removes the key, and an expired share was lost."""
    rw("r", TOKEN)
    rw("r", OTHER)
    assert release("shared_release", TOKEN) == 1
    assert release("shared_release", TOKEN) == 0
    assert call("shared_extend", (keys.lock,), OTHER, 60_000) == 1
    assert release("shared_release", OTHER[:16]) == 1
    assert dump() == {}


def test_keep_out_of_memory(rw, release, full):
    """`keep` works on a server that is out of memory."""
    rw("r", TOKEN)
    with full():
        assert release("shared_release", TOKEN, 5_000) == 1
    assert 0 < rw("w", OTHER)[1] <= 5_000


def test_keep(redis, rw, release, woken, keys):
    """With `keep` a share stays for that time, without a holder and in its mode."""
    rw("r")
    rw("w", OTHER, wait=60_000)
    assert release("shared_release", keep=5_000) == 1
    assert woken() == ""
    assert 0 < redis.pttl(keys.lock) <= 5_000
    assert rw("w", ANOTHER, order=1, holder="a")[0] == 0
    rw("w", OTHER, wait=-1)
    assert rw("r", ANOTHER) > 0


def test_keep_writing(rw, release):
    """A write share that is kept blocks readers."""
    rw("w")
    assert release("shared_release", keep=5_000) == 1
    assert rw("r", OTHER)[0] == 0


def test_read_fencing(redis, rw, keys):
    """The fencing token grows with each grant."""
    redis.set(keys.fence, 9 * 10**15)
    assert rw("r", fencing=1)[:2] == [1, 9 * 10**15 + 1]
    assert rw("r", OTHER, fencing=1)[1] == 9 * 10**15 + 2


def test_other_kinds(redis, rw, keys, dump):
    """A lock of another kind and a key of another type raise an error and stay."""
    for value in ({VALUE: f"semaphore@{now(redis) + 9_000} "}, {VALUE: f"rlock@{now(redis) + 9_000} me"}, {b"a": b"x"}):
        redis.delete(keys.lock)
        redis.hset(keys.lock, mapping=value)
        before = dump()
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            rw("r", OTHER)
        assert dump() == before
