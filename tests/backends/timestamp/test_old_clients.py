"""Locks that pass between older clients and this package, and all interleavings of their steps."""

import functools
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from django_redlock.errors import LockLost

PATIENCE = 20


@pytest.mark.parametrize("read", [int, float])
def test_we_exclude_old_code(backend, old, read):
    """While we hold the lock old code can't acquire it, however it parses numbers; after our release it can."""
    with backend.lock("stock") as lock:
        assert not old(read=read).take()
        lock.check()
        assert lock.owned()
    assert old(read=read).take()


def test_old_code_replaces_us(backend, old, redis):
    """After we died and our lease ended old code acquires, and our late release leaves its lock alone."""
    lock = backend.lock("stock", ttl=0.3, auto_renew=False)
    lock.acquire()
    client, deadline = old(), time.monotonic() + PATIENCE
    while not client.take():
        assert time.monotonic() < deadline
    value = redis.get("stock")
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == value


def test_a_late_holder_of_old_code(backend, old):
    client = old(clock=lambda: time.time() - 100)
    assert client.take()
    lock = backend.lock("stock")
    assert lock.acquire(False)
    client.clock = time.time
    client.release()
    assert lock.owned()


def test_a_waiter_sees_that_old_code_is_done(backend, old):
    """A waiter for a lock of old code, which sends no wake-ups, polls and acquires soon after the release."""
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
    """A renewal writes a later end, and the holder can still release the lock."""
    lock = backend.lock("stock", ttl=10)
    lock.acquire()
    before = int(redis.get("stock"))
    lock.extend(100)
    assert int(redis.get("stock")) > before
    assert lock.owned()
    lock.release()
    assert old().take()


def test_min_hold_holds_for_old_code(backend, old):
    """A lock that is kept by min_hold after its release excludes old code, too."""
    with backend.lock("stock", ttl=5, min_hold=60):
        pass
    assert not old().take()
    held = backend.describe("stock")
    assert held is not None
    assert held.remaining > 5


# ── C0 died; C1 and C2 saw it expired ─────────────────────────────────────────────────────────


def test_c1_was_slower_than_us(backend, dead, old, redis):
    """C1 reads the expired value, then we acquire: C1's GETSET fails, but moves the value, and we get LockLost."""
    c1, lock = old(), backend.lock("stock")
    steps = c1.up_to("GETSET")
    assert lock.acquire(False)
    assert not c1.finish(steps)
    moved = redis.get("stock")
    with pytest.raises(LockLost):
        lock.extend()
    assert not backend.lock("stock").acquire(False)
    assert redis.get("stock") == moved


def test_c1_deletes_what_we_took(backend, dead, older, redis):
    """Old code that deletes a value after reading it as expired can take our lock; our release then raises LockLost."""
    c1, lock = older(), backend.lock("stock")
    steps = c1.up_to("DEL")
    assert lock.acquire(False)
    assert c1.finish(steps)
    value = redis.get("stock")
    assert not lock.owned()
    with pytest.raises(LockLost):
        lock.release()
    assert redis.get("stock") == value


# ── every order ───────────────────────────────────────────────────────────────────────────────


class Ours:
    """This package in the shape of an old client: acquire, then release."""

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
    """Call `play(choose)` for every order of steps. `choose(n)` returns which of n clients takes the next step."""
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
    """In every interleaving of two old clients and us, at most one holds the lock."""
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
