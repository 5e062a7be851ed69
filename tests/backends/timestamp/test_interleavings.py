"""All interleavings of two clients of the old protocol and of this package."""

import functools
import itertools
import time
from contextlib import suppress

import pytest

from django_redlock.errors import LockLost

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
