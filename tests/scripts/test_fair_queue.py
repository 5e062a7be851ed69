"""fair_acquire.lua, rw_acquire.lua, rw_release.lua, and the wake-up of their queue by other scripts"""

import re

import pytest
from redis.exceptions import ResponseError

from tests.scripts.conftest import OTHER, OWNER, TOKEN, VALUE, WAITER

ANOTHER = b"c" * 24 + b"00000000"
DAY = 86_400_000


@pytest.fixture
def fair(call, keys):
    """`fair(token, wait, …)`: fair_acquire"""

    def run(token=TOKEN, wait=0, ttl=10_000, fencing=0, order=2):
        return call("fair_acquire", (keys.lock, keys.waiters, keys.fence), token, OWNER, ttl, fencing, wait, order)

    return run


@pytest.fixture
def rw(call, keys):
    """`rw(mode, token, wait, …)`: rw_acquire; every token is another holder's."""

    def run(mode, token=TOKEN, wait=0, ttl=10_000, fencing=0, order=2, holder=None):
        args = token, OWNER, ttl, fencing, wait, order, mode, holder or token[:1]
        return call("rw_acquire", (keys.lock, keys.waiters, keys.fence), *args)

    return run


@pytest.fixture
def release(call, keys):
    """`release(script, token, keep)`"""
    return lambda name, token=TOKEN, keep=0: call(name, (keys.lock,), token, keep)


@pytest.fixture
def woken(redis, keys):
    """`woken()`: the first letters of the tokens that are woken now, and of none is it remembered."""

    def look():
        lists = sorted(redis.scan_iter(match=keys.wake + b":*"))
        assert all(0 < redis.pttl(each) <= 1_000 for each in lists)
        redis.delete(*lists or ["-"])
        return b"".join(each.removeprefix(keys.wake + b":")[:1] for each in lists).decode()

    return look


@pytest.fixture
def line(redis, keys):
    """`line()`: the queue in order, each waiter as mode and first letter."""
    return lambda: [each[:1].decode() + each[2:3].decode() for each in redis.zrange(keys.lock + b":line", 0, -1)]


def now(redis):
    seconds, micros = redis.time()
    return seconds * 1000 + micros // 1000


def lapse(redis, keys, token):
    """Let it have been silent for a while."""
    redis.zadd(keys.waiters, {token[:24] + b" " + OWNER: now(redis) - 1})


# ── a mutex in order of arrival ──────────────────────────────────────────────────────────────


def test_fair_free(redis, fair, keys, dump):
    """A free lock is granted, as the plain string that any other mutex is; the same token is granted again."""
    assert fair() // 1000 <= now(redis)
    assert fair() > 0
    assert dump() == {keys.lock: VALUE}
    assert 9_000 < redis.pttl(keys.lock) <= 10_000


def test_fair_fencing(redis, fair, keys):
    """A fencing token grows, also above the server's clock."""
    redis.set(keys.fence, 9 * 10**15)
    assert fair(fencing=1)[:2] == [1, 9 * 10**15 + 1]
    assert redis.pttl(keys.fence) > DAY - 5_000


def test_fair_held(redis, fair, line, keys, dump):
    """A lock that is held is refused, with what is left of its lease and its owner; who can't wait leaves no trace."""
    fair(OTHER)
    refused, left, _, owner = fair()
    assert (refused, owner, 9_000 < left <= 10_000) == (0, OWNER, True)
    assert set(dump()) == {keys.lock}
    fair(wait=900)
    assert (line(), redis.zrange(keys.waiters, 0, -1)) == (["wa"], [WAITER])
    fair(wait=-1)
    assert set(dump()) == {keys.lock}


def test_fair_order(redis, fair, release, line, woken, keys):
    """Who came first is woken, and only that one is granted, whoever asks."""
    fair(ANOTHER)
    fair(OTHER, wait=900)
    fair(TOKEN, wait=900)
    fair(OTHER, wait=-900)
    assert line() == ["wb", "wa"]
    release("mutex_release", ANOTHER)
    assert woken() == "b"
    refused, left, _, owner = fair(TOKEN, wait=-900)
    assert (refused, owner, 0 < left <= 900) == (0, b"", True)
    assert fair(b"d" * 32)[0] == 0
    assert fair(OTHER, wait=-900) > 0
    assert line() == ["wa"]
    release("mutex_release", OTHER)
    assert woken() == "a"


def test_fair_silent(redis, fair, release, line, woken, keys):
    """Who is silent is passed and not woken; who comes back has its place still."""
    fair(ANOTHER)
    fair(OTHER, wait=900)
    fair(TOKEN, wait=900)
    lapse(redis, keys, OTHER)
    fair(OTHER, wait=-900)
    assert line() == ["wb", "wa"]
    lapse(redis, keys, OTHER)
    release("mutex_release", ANOTHER)
    assert woken() == "a"
    assert fair(TOKEN, wait=-900) > 0


def test_fair_gone(redis, fair, line, keys):
    """Who has been silent for ten seconds has no place any more."""
    fair(ANOTHER)
    fair(OTHER, wait=900)
    redis.zadd(keys.waiters, {OTHER[:24] + b" " + OWNER: now(redis) - 10_001})
    fair(TOKEN, wait=900)
    fair(TOKEN, wait=-900)
    redis.delete(keys.lock)
    assert fair(TOKEN, wait=-900) > 0
    assert line() == []


def test_fair_put_back(fair, call, keys):
    """A holder that puts its lock back on a server that has forgotten it passes the line."""
    fair(ANOTHER)
    fair(OTHER, wait=900)
    call("mutex_release", (keys.lock,), ANOTHER, 0)
    assert fair(order=0) > 0


def test_fair_forced(fair, call, woken, keys):
    """A force release wakes who is first in line."""
    fair(ANOTHER)
    fair(OTHER, wait=900)
    call("force_release", (keys.lock,), "")
    assert woken() == "b"


def test_fair_beside_others(redis, fair, call, release, woken, keys):
    """Those who stand in no line are woken when nobody is left in it."""
    fair(ANOTHER)
    call("mutex_acquire", (keys.lock, keys.waiters, keys.fence), TOKEN, OWNER, 10_000, 0, 6_000)
    fair(OTHER, wait=900)
    release("mutex_release", ANOTHER)
    assert (woken(), redis.llen(keys.wake)) == ("b", 0)
    assert fair(OTHER, wait=-900) > 0
    release("mutex_release", OTHER)
    assert (woken(), redis.llen(keys.wake)) == ("", 1)


# ── readers and writers ──────────────────────────────────────────────────────────────────────


def test_read(redis, rw, keys):
    """Many read at once: a share for each, with its end, its mode and its holder."""
    before = now(redis)
    assert before <= rw("r") // 1000 <= now(redis)
    assert rw("r", OTHER, ttl=20_000) > 0
    shares = redis.hgetall(keys.lock)
    assert set(shares) == {VALUE, OTHER + b" " + OWNER}
    assert re.fullmatch(rb"rwlock@\d{13} r a", shares[VALUE])
    assert 19_000 < redis.pttl(keys.lock) <= 20_000


def test_write(rw, dump):
    """Who writes is alone; the refusal says for how long, until the last of those in the way, and by whom."""
    rw("r", ttl=5_000)
    rw("r", OTHER, ttl=10_000)
    before = dump()
    refused, left, _, owner = rw("w", ANOTHER)
    assert (refused, owner, 9_000 < left <= 10_000) == (0, OWNER, True)
    assert dump() == before


@pytest.mark.parametrize("mode", ["r", "w"])
def test_write_excludes(rw, mode):
    """Nobody else reads or writes while somebody writes."""
    assert rw("w") > 0
    assert rw("w") > 0  # the same token
    assert rw(mode, OTHER)[0] == 0


def test_again(rw, redis, keys):
    """Whoever holds it takes it again with another token, and may read while it writes, but not the other way round."""
    rw("w", TOKEN, holder="me")
    assert rw("w", OTHER, holder="me") > 0
    assert rw("r", ANOTHER, holder="me") > 0
    redis.delete(keys.lock)
    rw("r", TOKEN, holder="me")
    assert rw("r", OTHER, holder="me") > 0
    with pytest.raises(ResponseError, match="UPGRADE"):
        rw("w", ANOTHER, holder="me")
    with pytest.raises(ResponseError, match="UPGRADE"):
        rw("w", ANOTHER, wait=900, holder="me")
    assert rw("w", ANOTHER, holder="you")[0] == 0


def test_ended_shares(redis, rw, keys):
    """A share that has ended is in nobody's way and gives no rights."""
    redis.hset(keys.lock, OTHER + b" x", f"rwlock@{now(redis) - 1} w you")
    redis.hset(keys.lock, ANOTHER + b" x", f"rwlock@{now(redis) - 1} r a")
    assert rw("w") > 0
    assert list(redis.hgetall(keys.lock)) == [VALUE]


def test_writer_in_line(rw, line):
    """A writer that waits lets nobody in who comes after it, but those who are in may take it again."""
    rw("r")
    rw("w", OTHER, wait=900)
    refused, left, _, _ = rw("r", ANOTHER, wait=900)
    assert (refused, 0 < left <= 900, line()) == (0, True, ["wb", "rc"])
    assert rw("r", b"d" * 32, holder="a") > 0


def test_silent_writer(redis, rw, keys):
    """A writer that is silent holds nobody up."""
    rw("r")
    rw("w", OTHER, wait=900)
    lapse(redis, keys, OTHER)
    assert rw("r", ANOTHER) > 0


def test_readers_in_line(rw, release):
    """Readers don't stand in each other's way, nor a writer in the way of readers that came before it."""
    rw("w", b"d" * 32)
    rw("r", TOKEN, wait=900)
    rw("r", OTHER, wait=900)
    rw("w", ANOTHER, wait=900)
    release("rw_release", b"d" * 32)
    assert rw("w", ANOTHER, wait=-900)[0] == 0
    assert rw("r", OTHER, wait=-900) > 0
    assert rw("r", TOKEN, wait=-900) > 0


@pytest.mark.parametrize(
    ("waiting", "expected"), [("rrwr", "ab"), ("wrw", "a"), ("rrr", "abc"), ("", "")], ids=str.__str__
)
def test_writer_wakes(rw, release, woken, waiting, expected):
    """With the end of the writing all readers up to the first writer are woken, or the writer that is first."""
    rw("w", b"z" * 32)
    for mode, letter in zip(waiting, "abcd", strict=False):
        rw(mode, letter.encode() * 32, wait=900)
    assert release("rw_release", b"z" * 32) == 1
    assert woken() == expected


def test_last_reader_wakes(rw, release, woken):
    """A writer is woken when the last reader has gone."""
    rw("r", TOKEN)
    rw("r", OTHER)
    rw("w", ANOTHER, wait=900)
    release("rw_release", TOKEN)
    assert woken() == ""
    release("rw_release", OTHER)
    assert woken() == "c"


def test_downgrade_wakes_readers(rw, release, woken):
    """Who ends writing and goes on reading wakes readers, and no writer."""
    rw("w", TOKEN, holder="me")
    rw("r", b"d" * 32, holder="me")
    rw("r", OTHER, wait=900)
    release("rw_release", TOKEN)
    assert woken() == "b"
    rw("r", OTHER, wait=-1)
    rw("w", ANOTHER, wait=900)
    release("rw_release", OTHER)
    assert woken() == ""


def test_giving_up_wakes(rw, woken, line):
    """A writer that gives up wakes the readers behind it."""
    rw("r", b"d" * 32)
    rw("w", TOKEN, wait=900)
    rw("r", OTHER, wait=900)
    rw("r", ANOTHER, wait=900)
    assert rw("w", TOKEN, wait=-1)[0] == 0
    assert (line(), woken()) == (["rb", "rc"], "bc")


def test_no_order_for_writers(rw):
    """Where nodes differ about the order, readers stand behind writers, and nothing else counts."""
    rw("w", b"d" * 32)
    rw("r", TOKEN, wait=900, order=1)
    rw("w", OTHER, wait=900, order=1)
    rw("w", ANOTHER, wait=900, order=1)
    rw("r", b"e" * 32, wait=900, order=1)
    assert rw("w", b"d" * 32, holder="d", order=1) > 0
    rw("w", b"d" * 32, ttl=1, holder="d", order=1)
    while (granted := rw("w", ANOTHER, wait=-900, order=1)) and isinstance(granted, list):
        assert granted[1] <= 1
    rw("w", ANOTHER, ttl=1, order=1)
    while isinstance(refused := rw("r", b"e" * 32, wait=-900, order=1), list) and refused[1] <= 1:
        pass
    assert refused[0] == 0
    assert rw("r", TOKEN, wait=-900, order=1) > 0


def test_put_back(rw):
    """A holder that puts its shares back passes the line, and may put back the reading before the writing."""
    rw("r", b"d" * 32)
    rw("w", OTHER, wait=900)
    assert rw("r", TOKEN, order=0) > 0
    assert rw("w", ANOTHER, order=0)[0] == 0


def test_put_back_both(rw):
    """What its holder held together may be put back in any order."""
    rw("r", TOKEN, holder="me", order=0)
    assert rw("w", OTHER, holder="me", order=0) > 0


def test_release(rw, release, dump, call, keys):
    """A share is given back, once; with the last of them the lock is gone. One that has ended was lost."""
    rw("r", TOKEN)
    rw("r", OTHER)
    assert release("rw_release", TOKEN) == 1
    assert release("rw_release", TOKEN) == 0
    assert call("shared_extend", (keys.lock,), OTHER, 60_000, 0) == 1
    assert release("rw_release", OTHER[:24]) == 1
    assert dump() == {}


def test_keep_out_of_memory(rw, release, full):
    """`keep` works on a server that is full, too."""
    rw("r", TOKEN)
    with full():
        assert release("rw_release", TOKEN, 2_000) == 1
    assert 0 < rw("w", OTHER)[1] <= 2_000


def test_keep(redis, rw, release, woken, keys):
    """With `keep` a share stays that long, as nobody's, and in the mode that it had."""
    rw("r")
    rw("w", OTHER, wait=900)
    assert release("rw_release", keep=2_000) == 1
    assert woken() == ""
    assert 0 < redis.pttl(keys.lock) <= 2_000
    assert rw("w", ANOTHER, order=1, holder="a")[0] == 0
    rw("w", OTHER, wait=-1)
    assert rw("r", ANOTHER) > 0


def test_keep_writing(rw, release):
    """What is kept of a writer keeps readers out, too."""
    rw("w")
    assert release("rw_release", keep=2_000) == 1
    assert rw("r", OTHER)[0] == 0


def test_read_fencing(redis, rw, keys):
    """A fencing token grows with each grant."""
    redis.set(keys.fence, 9 * 10**15)
    assert rw("r", fencing=1)[:2] == [1, 9 * 10**15 + 1]
    assert rw("r", OTHER, fencing=1)[1] == 9 * 10**15 + 2


def test_other_kinds(redis, rw, keys, dump):
    """A lock that is held as another kind, or a key of another type, is an error that says so, and stays."""
    for value in ({VALUE: f"semaphore@{now(redis) + 9_000} "}, {VALUE: f"rlock@{now(redis) + 9_000} me"}, {b"a": b"x"}):
        redis.delete(keys.lock)
        redis.hset(keys.lock, mapping=value)
        before = dump()
        with pytest.raises(ResponseError, match="WRONGTYPE"):
            rw("r", OTHER)
        assert dump() == before
