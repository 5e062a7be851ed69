"""The value and the name of a timestamp lock's key, and its inspection."""

import threading
import time

import pytest

from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.errors import LockError, LockLost
from tests.backends.timestamp.old_client import OldClient

PATIENCE = 20


# ── what is in the key ────────────────────────────────────────────────────────────────────────


def test_the_same_number_is_not_the_same_holder(backend, redis):
    """A lock of old code with exactly our timestamp is told apart from ours, which has a leading zero."""
    lock = backend.lock("stock")
    lock.acquire()
    same = str(int(redis.get("stock")))
    redis.delete("stock")
    assert redis.setnx("stock", same)
    assert not lock.owned()
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == same


def test_the_key_has_a_ttl(backend, redis):
    """Our key has a Redis ttl besides its timestamp, so that it ends when we die."""
    lock = backend.lock("stock", ttl=10)
    lock.acquire()
    assert 0 < redis.pttl("stock") <= 10_000


def test_the_value_outlasts_the_lease(redis_url, redis):
    """A client whose clock is ahead by up to clock_skew still reads an end in the future."""
    for skew in (0, 100):
        backend = TimestampBackend(redis_url, node_timeout=5, unit="ms", key_format="{name}", clock_skew=skew)
        with backend.lock("stock", ttl=60):
            told = int(redis.get("stock")) - time.time() * 1000
            assert 30_000 + skew * 1000 < told <= 60_001 + skew * 1000
        backend.close()


@pytest.mark.parametrize(("skew", "granted"), [(0, True), (30, False)])
def test_a_clock_that_is_behind(redis_url, redis, old, skew, granted):
    """A lock of a machine whose clock is behind by up to clock_skew is not taken over."""
    client = old(clock=lambda: time.time() - 20, unit="s")
    assert client.take()
    backend = TimestampBackend(redis_url, node_timeout=5, key_format="{name}", clock_skew=skew)
    assert backend.lock("stock").acquire(False) is granted
    backend.close()


@pytest.mark.parametrize("value", ["", "yes", "0x10", "nan", "inf", "17e", "-5", '{"a": 1}'])
def test_a_value_that_is_no_timestamp(backend, redis, value):
    """A value that is no timestamp raises LockError and stays."""
    redis.set("stock", value)
    with pytest.raises(LockError, match="WRONGTYPE no timestamp") as caught:
        backend.lock("stock").acquire(False)
    assert type(caught.value) is LockError
    assert backend.force_release("stock") is False
    assert redis.get("stock") == value


def test_a_key_of_another_type(backend, redis):
    redis.rpush("stock", "1", "2")
    with pytest.raises(LockError, match="WRONGTYPE") as caught:
        backend.lock("stock").acquire(False)
    assert type(caught.value) is LockError
    assert backend.describe("stock") is None
    assert backend.force_release("stock") is False
    assert redis.lrange("stock", 0, -1) == ["1", "2"]


def test_a_timestamp_in_another_unit(backend, unit, redis):
    """A timestamp in seconds where milliseconds are expected, or the reverse, raises LockError."""
    client = OldClient(redis, "stock", unit="ms" if unit == "s" else "s")
    assert client.take()
    with pytest.raises(LockError, match=f"in units of {'1000' if unit == 's' else '1'} ms"):
        backend.lock("stock").acquire(False)
    assert int(redis.get("stock")) == client.mine


@pytest.mark.parametrize("written", ["{:.0f}", "{:.6f}", "{:.9e}", " {:.0f}\n"])
def test_numbers_as_others_write_them(redis, backend, unit, written):
    scale = 1 if unit == "s" else 1000
    redis.set("stock", written.format((time.time() + 100) * scale))
    assert not backend.lock("stock").acquire(False)
    redis.set("stock", written.format((time.time() - 100) * scale))
    assert backend.lock("stock").acquire(False)


# ── names and onlookers ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key_format", "key"),
    [("{name}", "stock:1"), ("lock.{name}", "lock.stock:1"), ("{prefix}/{name}/mutex", "shop/stock:1/mutex")],
)
def test_key_format(own_redis, key_format, key):
    """The lock's key has the name of the old code, and companion keys have the prefix."""
    server = own_redis()
    redis = server.client(decode_responses=True)
    backend = TimestampBackend(server.url, node_timeout=5, key_format=key_format, key_prefix="shop")
    with backend.lock("stock:1"):
        (companion,) = set(redis.keys()) - {key}
        assert companion.startswith("shop:{")
        assert [held.name for held in backend.held()] == ["stock:1"]
        assert [held.name for held in backend.held("stock:*")] == ["stock:1"]
        assert backend.held("order:*") == []
    assert redis.keys() == []
    backend.close()
    redis.close()


def test_held_among_other_keys(backend, redis, old):
    """With bare names held() reads every key, and lists only those with a timestamp in the future."""
    redis.mset({"counter": 17, "text": "abc", "later": "9" * 30, "empty": ""})
    redis.rpush("list", 1)
    assert old().take()
    with backend.lock("ours", owner="me"):
        listed = {held.name: held for held in backend.held()}
        assert set(listed) == {"stock", "ours"}
        assert listed["ours"].owner.label == "me"
        assert str(listed["stock"].owner) == "unknown"
        assert {held.kind for held in listed.values()} == {"mutex"}
        assert 0 < listed["stock"].remaining <= 13
        assert len(backend.held(limit=1)) == 1


@pytest.mark.parametrize("key", ["x" * 600, "}", "}stock"])
def test_held_among_keys_that_no_lock_can_have(backend, redis, key):
    """held() skips keys of other programs that are not valid names of locks."""
    redis.set(key, "9" * 13)
    with backend.lock("ours"):
        assert [held.name for held in backend.held()] == ["ours"]


def test_force_release_of_old_code(backend, old, redis):
    assert old().take()
    seen = backend.describe("stock")
    assert backend.force_release("stock", "another") is False
    assert backend.force_release("stock", seen.digest) is True
    assert redis.exists("stock") == 0
    assert backend.force_release("stock") is False


def test_force_release_of_a_holder_that_renews(backend, redis, monkeypatch):
    """Old code may write a later time between the look at the lock and its release: the lock is released anyway."""
    times = iter([b"2", b"1"])  # later than the first value
    perform = backend.perform

    def renewing(request):
        reply = perform(request)
        if "describe" in getattr(request, "script", ("",))[0] and (more := next(times, None)):
            redis.incrby("stock", more)
        return reply

    redis.set("stock", round((time.time() + 100) * (1000 if backend.unit == "ms" else 1)))
    monkeypatch.setattr(backend, "perform", renewing)
    assert backend.force_release("stock")
    assert not redis.exists("stock")


def test_holder_learns_that_old_code_took_over(backend, dead, older):
    told = threading.Event()
    c1, lock = older(), backend.lock("stock", ttl=0.6, on_lost=lambda _: told.set())
    steps = c1.up_to("DEL")
    lock.acquire()
    assert c1.finish(steps)
    assert told.wait(PATIENCE)
    assert lock.lost
