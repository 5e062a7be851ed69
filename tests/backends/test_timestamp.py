"""Locks exchanged with a client that follows the old protocol to the letter, in every order of their commands."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.errors import LockError, LockLost
from tests.backends.old_code import OldClient, OlderClient

PATIENCE = 20


@pytest.fixture
def redis(redis_server):
    with redis_server.client(decode_responses=True) as client:
        yield client


@pytest.fixture(params=["s", "ms"])
def unit(request):
    return request.param


@pytest.fixture
def backend(redis_url, unit):
    backend = TimestampBackend(redis_url, unit=unit, key_format="{name}", node_timeout=2)
    yield backend
    backend.close()


@pytest.fixture
def old(redis, unit):
    """`old()`: another client of old code that wants the key `stock`."""
    return functools.partial(OldClient, redis, "stock", unit=unit)


@pytest.fixture
def older(redis, unit):
    """`older()`: one from before GETSET."""
    return functools.partial(OlderClient, redis, "stock", unit=unit)


@pytest.fixture
def dead(old):
    """C0 held the lock, died, and its time has passed."""
    client = old(clock=lambda: time.time() - 100)
    assert client.take()


# ── one after another ─────────────────────────────────────────────────────────────────────────


def test_old_code_excludes_us(backend, old, redis):
    """While old code holds the lock we don't get it, and leave its value as it is; then we do."""
    first, lock = old(), backend.lock("stock")
    assert first.take()
    value = redis.get("stock")
    assert not lock.acquire(False)
    assert not lock.acquire(timeout=0.05)
    assert redis.get("stock") == value
    first.release()
    assert lock.acquire(False)


@pytest.mark.parametrize("read", [int, float])
def test_we_exclude_old_code(backend, old, read):
    """While we hold the lock old code doesn't get it, however it reads numbers; then it does."""
    with backend.lock("stock") as lock:
        assert not old(read=read).take()
        lock.check()
        assert lock.owned()
    assert old(read=read).take()


def test_a_dead_holder_is_replaced(backend, dead, old):
    """C0 has died: we take the lock, and old code that comes later is refused."""
    lock = backend.lock("stock")
    assert lock.acquire(False)
    assert not old().take()
    assert lock.owned()


def test_old_code_replaces_us(backend, old, redis):
    """We have died: old code gets the lock when our lease has ended. Too late, we free nothing that is its."""
    lock = backend.lock("stock", ttl=0.1, auto_renew=False)
    lock.acquire()
    client, deadline = old(), time.monotonic() + PATIENCE
    while not client.take():
        assert time.monotonic() < deadline
    value = redis.get("stock")
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == value


def test_a_late_holder_of_old_code(backend, old):
    """A holder that is late by its own clock frees nothing of ours: it sees that its time has passed."""
    client = old(clock=lambda: time.time() - 100)
    assert client.take()
    lock = backend.lock("stock")
    assert lock.acquire(False)
    client.clock = time.time
    client.release()
    assert lock.owned()


def test_a_waiter_sees_that_old_code_is_done(backend, old):
    """Old code wakes nobody: one who waits for it looks again and again, and has the lock long before that ends."""
    client = old(ttl=100)
    assert client.take()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(backend.lock("stock").acquire, True, 60)
        until = time.monotonic() + PATIENCE
        while (held := backend.describe("stock")) is None or not held.waiters:
            assert time.monotonic() < until
        client.release()
        assert waiting.result(PATIENCE)


def test_renewal_writes_the_value_anew(backend, old, redis):
    """A renewed lock says a later end; its holder is recognised by the newest value, and can free it."""
    lock = backend.lock("stock", ttl=10)
    lock.acquire()
    before = int(redis.get("stock"))
    lock.extend(100)
    assert int(redis.get("stock")) > before
    assert lock.owned()
    lock.release()
    assert old().take()


def test_min_hold_holds_for_old_code(backend, old):
    """What is released early under min_hold stays taken for old code too."""
    with backend.lock("stock", ttl=5, min_hold=60):
        pass
    assert not old().take()
    held = backend.describe("stock")
    assert held is not None
    assert held.ttl > 5


# ── C0 died; C1 and C2 saw it expired ─────────────────────────────────────────────────────────


def test_c1_was_slower_than_us(backend, dead, old, redis):
    """C1 saw the expired value, then we took it: C1's GETSET tells it so. We notice that ours is gone, free nothing."""
    c1, lock = old(), backend.lock("stock")
    steps = c1.up_to("GETSET")
    assert lock.acquire(False)
    assert not c1.finish(steps)
    moved = redis.get("stock")
    with pytest.raises(LockLost):
        lock.extend()
    assert not backend.lock("stock").acquire(False)
    assert redis.get("stock") == moved


def test_c1_was_faster_than_us(backend, dead, old, redis):
    """C1 and we saw the expired value, C1 took it: our script sees C1's value, and leaves it alone."""
    c1, c2, lock = old(), old(), backend.lock("stock")
    waiting = c2.up_to("GETSET")
    assert c1.take()
    value = redis.get("stock")
    assert not lock.acquire(False)
    assert redis.get("stock") == value
    assert not c2.finish(waiting)
    assert not lock.acquire(False)


def test_c1_deletes_what_we_took(backend, dead, older, redis):
    """Older code that deletes what it saw expired takes the lock from us: we free nothing of its, and learn it."""
    c1, lock = older(), backend.lock("stock")
    steps = c1.up_to("DEL")
    assert lock.acquire(False)
    assert c1.finish(steps)
    value = redis.get("stock")
    assert not lock.owned()
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == value


def test_we_never_delete_what_another_took(backend, dead, older, redis):
    """C1 deletes and takes; we, who would be C2 and delete it again, are refused. C3 after that likewise."""
    c1, c3, lock = older(), older(), backend.lock("stock")
    steps = c1.up_to("DEL")
    assert next(steps) == "SETNX"
    assert c1.finish(steps)
    assert not lock.acquire(False)
    assert not c3.take()
    assert int(redis.get("stock")) == c1.mine


def test_we_come_between_delete_and_setnx(backend, dead, older):
    """C1 has deleted the expired value, and we are first: C1's SETNX is refused, C4 is too."""
    c1, c4, lock = older(), older(), backend.lock("stock")
    steps = c1.up_to("DEL")
    assert next(steps) == "SETNX"
    assert lock.acquire(False)
    assert not c1.finish(steps)
    assert not c4.take()
    assert lock.owned()


def test_get_answers_nil(backend, old):
    """Our lock ends between its SETNX and its GET: old code starts anew, and gets it."""
    client, lock = old(), backend.lock("stock")
    lock.acquire()
    steps = client.up_to("GET")
    lock.release()
    assert client.finish(steps)
    assert not lock.acquire(False)


def test_getset_answers_nil(backend, dead, old):
    """It saw an expired value; we took the lock and freed it: its GETSET answers nil, and it has the lock."""
    client, lock = old(), backend.lock("stock")
    steps = client.up_to("GETSET")
    with lock:
        pass
    assert client.finish(steps)
    assert not lock.acquire(False)


# ── every order ───────────────────────────────────────────────────────────────────────────────


class Ours:
    """We, in the shape of an old client: take, then free."""

    def __init__(self, backend):
        self.lock = backend.lock("stock", auto_renew=False)
        self.holds = False

    def taking(self):
        yield "acquire"
        self.holds = self.lock.acquire(False)
        if self.holds:
            yield "release"
            self.holds = False
            with suppress(LockLost):
                self.lock.release()


def every_order(play):
    """Call `play(choose)` for every order of steps: `choose(n)` says which of the n who have steps left goes on."""
    pending, count = [[]], 0
    while pending:
        count += 1
        play(functools.partial(_next_step, pending, pending.pop(), itertools.count()))
    return count


def _next_step(pending, order, steps, n):
    step = next(steps)
    if step == len(order):
        pending.extend([*order, other] for other in range(1, n))
        order.append(0)
    return order[step]


@pytest.mark.parametrize("before", ["free", "expired"])
def test_every_order(backend, old, redis, before):
    """Two old clients and we, in every order of our commands: never do two believe to hold the lock."""
    holders = set()

    def play(choose):
        redis.delete("stock")
        if before == "expired":
            redis.set("stock", old(clock=lambda: time.time() - 100).stamp())
        clients = [old(), old(), Ours(backend)]
        running = [(client, client.taking()) for client in clients]
        doing = {id(client): next(steps) for client, steps in running}
        while running:
            client, steps = running[choose(len(running))]
            value, others = redis.get("stock"), [each for each in clients if each.holds and each is not client]
            command, doing[id(client)] = doing[id(client)], next(steps, "")
            assert len([each for each in clients if each.holds]) <= 1
            if others and command in ("acquire", "release"):
                assert redis.get("stock") == value, f"our {command} has changed what another holds"
            if not doing[id(client)]:
                running.remove((client, steps))
            holders.update(index for index, each in enumerate(clients) if each.holds)

    assert every_order(play) > 20
    assert holders == {0, 1, 2}


# ── what is in the key ────────────────────────────────────────────────────────────────────────


def test_the_same_number_is_not_the_same_holder(backend, redis):
    """Old code that takes the lock from us with just our timestamp is told apart: it writes no leading zero."""
    lock = backend.lock("stock")
    lock.acquire()
    same = str(int(redis.get("stock")))
    redis.delete("stock")
    assert redis.setnx("stock", same)
    assert not lock.owned()
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == same


def test_it_ends_by_itself_too(backend, redis):
    """Our key has a Redis ttl besides: when we die old code finds it free, not expired."""
    lock = backend.lock("stock", ttl=10)
    lock.acquire()
    assert 0 < redis.pttl("stock") <= 10_000


def test_the_value_outlasts_the_lease(redis_url, redis):
    """A client whose clock is ahead by up to clock_skew still reads a time to come."""
    for skew in (0, 5):
        backend = TimestampBackend(redis_url, unit="ms", key_format="{name}", clock_skew=skew)
        with backend.lock("stock", ttl=10):
            told = int(redis.get("stock")) - time.time() * 1000
            assert 9_000 + skew * 1000 < told <= 10_001 + skew * 1000
        backend.close()


@pytest.mark.parametrize(("skew", "granted"), [(0, True), (30, False)])
def test_a_clock_that_is_behind(redis_url, redis, old, skew, granted):
    """What a machine wrote whose clock is behind by up to clock_skew is not taken from it."""
    client = old(clock=lambda: time.time() - 20, unit="s")
    assert client.take()
    backend = TimestampBackend(redis_url, key_format="{name}", clock_skew=skew)
    assert backend.lock("stock").acquire(False) is granted
    backend.close()


@pytest.mark.parametrize("value", ["", "yes", "0x10", "nan", "inf", "17e", "-5", '{"a": 1}'])
def test_another_value(backend, redis, value):
    """A value that is no timestamp is a LockError that says so, and stays."""
    redis.set("stock", value)
    with pytest.raises(LockError, match="WRONGTYPE no timestamp") as caught:
        backend.lock("stock").acquire(False)
    assert type(caught.value) is LockError
    assert backend.force_release("stock") is False
    assert redis.get("stock") == value


def test_another_type(backend, redis):
    """A key of another type is a LockError that says so, and stays."""
    redis.rpush("stock", "1", "2")
    with pytest.raises(LockError, match="WRONGTYPE") as caught:
        backend.lock("stock").acquire(False)
    assert type(caught.value) is LockError
    assert backend.describe("stock") is None
    assert backend.force_release("stock") is False
    assert redis.lrange("stock", 0, -1) == ["1", "2"]


def test_the_other_unit(backend, unit, redis):
    """Seconds where milliseconds are agreed, or the reverse, would be far past or for ever: a LockError."""
    client = OldClient(redis, "stock", unit="ms" if unit == "s" else "s")
    assert client.take()
    with pytest.raises(LockError, match=f"in units of {'1000' if unit == 's' else '1'} ms"):
        backend.lock("stock").acquire(False)
    assert int(redis.get("stock")) == client.mine


@pytest.mark.parametrize("written", ["{:.0f}", "{:.6f}", "{:.9e}", " {:.0f}\n"])
def test_numbers_as_others_write_them(redis, backend, unit, written):
    """Fractions, exponents and white space are read; past or to come is what matters."""
    scale = 1 if unit == "s" else 1000
    redis.set("stock", written.format((time.time() + 100) * scale))
    assert not backend.lock("stock").acquire(False)
    redis.set("stock", written.format((time.time() - 100) * scale))
    assert backend.lock("stock").acquire(False)


def test_granted_again(backend):
    """A request that is sent twice because its answer was lost is granted twice, and freed by one release."""
    lock = backend.lock("stock")
    lock.acquire()
    again = backend._primitive.take(lock._lease.claim)
    assert isinstance(backend.perform(again), int)
    lock.release()
    assert backend.describe("stock") is None


# ── names and onlookers ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key_format", "key"),
    [("{name}", "stock:1"), ("lock.{name}", "lock.stock:1"), ("{prefix}/{name}/mutex", "shop/stock:1/mutex")],
)
def test_key_format(redis_url, redis, key_format, key):
    """The key is called as the old code calls it; what else we keep is under the prefix, and free of old names."""
    backend = TimestampBackend(redis_url, key_format=key_format, key_prefix="shop")
    with backend.lock("stock:1"):
        (companion,) = set(redis.keys()) - {key}
        assert companion.startswith("shop:{")
        assert [held.name for held in backend.held()] == ["stock:1"]
        assert [held.name for held in backend.held("stock:*")] == ["stock:1"]
        assert backend.held("order:*") == []
    assert redis.keys() == []
    backend.close()


def test_held_among_other_keys(backend, redis, old):
    """With bare names held() looks at every key: only those with a time to come are locks."""
    redis.mset({"counter": 17, "text": "abc", "later": "9" * 30, "empty": ""})
    redis.rpush("list", 1)
    assert old().take()
    with backend.lock("ours", owner="me"):
        listed = {held.name: held for held in backend.held()}
        assert set(listed) == {"stock", "ours"}
        assert listed["ours"].owner.label == "me"
        assert str(listed["stock"].owner) == "unknown"
        assert {held.kind for held in listed.values()} == {"timestamp"}
        assert 0 < listed["stock"].ttl <= 13
        assert len(backend.held(limit=1)) == 1


def test_force_release_of_old_code(backend, old, redis):
    """A lock of old code can be freed by force, just that holding if asked so."""
    assert old().take()
    seen = backend.describe("stock")
    assert backend.force_release("stock", "another") is False
    assert backend.force_release("stock", seen.digest) is True
    assert redis.exists("stock") == 0
    assert backend.force_release("stock") is False


def test_holder_learns_that_old_code_took_over(backend, dead, older):
    """Where old code has taken the lock from a holder, that one is told with its next renewal."""
    told = threading.Event()
    c1, lock = older(), backend.lock("stock", ttl=0.6, on_lost=lambda _: told.set())
    steps = c1.up_to("DEL")
    lock.acquire()
    assert c1.finish(steps)
    assert told.wait(PATIENCE)
    assert lock.lost


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"unit": "us"}, ValueError),
        ({"key_format": "lock"}, ValueError),
        ({"key_format": "{name}{name}"}, ValueError),
        ({"key_format": "{key}{name}"}, ValueError),
        ({"key_format": "{name!r}"}, ValueError),
        ({"clock_skew": -1}, ValueError),
        ({"clock_skew": "1"}, TypeError),
        ({"quarantine": True}, ValueError),
    ],
    ids=repr,
)
def test_options_that_make_no_sense(options, error):
    """They are refused when the backend is made, by name."""
    with pytest.raises(error, match=next(iter(options))):
        TimestampBackend("redis://127.0.0.1:1/0", **options)
