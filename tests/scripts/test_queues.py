"""The queue of fair locks and of readers and writers: fair_acquire.lua, fair_release.lua, rw_acquire.lua"""

import pytest

from tests.scripts.conftest import ANOTHER, OTHER, OWNER, RESERVED, TOKEN, VALUE, now


def lapse(redis, keys, token, since=1):
    """Let the waiter's entry have expired, that many ms ago."""
    redis.zadd(keys.waiters, {token[:16] + b" " + OWNER: now(redis) - since})


def line(redis, keys):
    """Return the queue in order, each waiter as mode and first letter."""
    return [each[:1].decode() + each[2:3].decode() for each in redis.zrange(keys.line, 0, -1)]


def woken(reply):
    """Return the first letters of the waiters that a release has named, whom the caller must wake."""
    return "".join(sorted(each[:1].decode() for each in reply[1:])) if isinstance(reply, list) else ""


def test_a_reserved_lock_is_free(redis, acquire, keys):
    """The queue has the order."""
    redis.set(keys.lock, RESERVED)
    assert acquire("fair", wait=6_000) > 0


def test_expired_entry_is_passed_over(redis, acquire, release, keys):
    """A waiter whose entry has expired is passed over, and keeps its place if it comes back."""
    acquire("fair", ANOTHER)
    acquire("fair", OTHER, wait=60_000)
    acquire("fair", wait=60_000)
    lapse(redis, keys, OTHER)
    acquire("fair", OTHER, wait=-60_000)
    assert line(redis, keys) == ["wb", "wa"]
    lapse(redis, keys, OTHER)
    assert woken(release("fair", ANOTHER)) == "a"
    assert acquire("fair", wait=-60_000) > 0


def test_expired_entry_loses_its_place(redis, acquire, keys):
    """A waiter whose entry expired ten seconds ago loses its place."""
    acquire("fair", ANOTHER)
    acquire("fair", OTHER, wait=60_000)
    lapse(redis, keys, OTHER, 10_001)
    acquire("fair", wait=60_000)
    acquire("fair", wait=-60_000)
    redis.delete(keys.lock)
    assert acquire("fair", wait=-60_000) > 0
    assert line(redis, keys) == []


def test_restored_lock_does_not_queue(acquire, release):
    """A holder that restores its lock on a server without data does not queue."""
    acquire("fair", ANOTHER)
    acquire("fair", OTHER, wait=60_000)
    release("fair", ANOTHER)
    assert acquire("fair", TOKEN, order=0) > 0


# ── readers and writers ──────────────────────────────────────────────────────────────────────


def test_ended_shares(redis, acquire, keys):
    """An expired share neither blocks others nor gives rights to its holder."""
    redis.hset(keys.lock, OTHER + b" x", f"rwlock@{now(redis) - 1} w you")
    redis.hset(keys.lock, ANOTHER + b" x", f"rwlock@{now(redis) - 1} r a")
    assert acquire("write") > 0
    assert list(redis.hgetall(keys.lock)) == [VALUE]


def test_queued_writer_whose_entry_has_expired(redis, acquire, keys):
    acquire("read")
    acquire("write", OTHER, wait=60_000)
    lapse(redis, keys, OTHER)
    assert acquire("read", ANOTHER) > 0


@pytest.mark.parametrize(
    ("waiting", "expected"), [("rrwr", "ab"), ("wrw", "a"), ("rrr", "abc"), ("", "")], ids=str.__str__
)
def test_writer_wakes(acquire, release, waiting, expected):
    """The end of a write wakes all readers up to the first writer, or the first writer."""
    acquire("write", b"z" * 24)
    for mode, letter in zip(waiting, "abcd", strict=False):
        acquire({"r": "read", "w": "write"}[mode], letter.encode() * 24, wait=60_000)
    assert woken(release("write", b"z" * 24)) == expected


def test_writers_without_order(acquire, extend):
    """With order=1 readers queue behind writers, and nothing else is ordered."""
    acquire("write", b"d" * 24)
    for kind, token in (("read", TOKEN), ("write", OTHER), ("write", ANOTHER), ("read", b"e" * 24)):
        acquire(kind, token, wait=60_000, order=1)
    assert acquire("write", b"d" * 24, holder="d", order=1) > 0
    extend("write", 1, b"d" * 24)
    while (granted := acquire("write", ANOTHER, wait=-60_000, order=1)) and isinstance(granted, list):
        assert granted[1] <= 1
    extend("write", 1, ANOTHER)
    while isinstance(refused := acquire("read", b"e" * 24, wait=-60_000, order=1), list) and refused[1] <= 1:
        pass
    assert refused[0] == 0
    assert acquire("read", TOKEN, wait=-60_000, order=1) > 0


def test_restored_shares_do_not_queue(acquire):
    acquire("read", b"d" * 24)
    acquire("write", OTHER, wait=60_000)
    assert acquire("read", TOKEN, order=0) > 0
    assert acquire("write", ANOTHER, order=0)[0] == 0


def test_restored_shares_in_any_order(acquire):
    acquire("read", TOKEN, holder="me", order=0)
    assert acquire("write", OTHER, holder="me", order=0) > 0
