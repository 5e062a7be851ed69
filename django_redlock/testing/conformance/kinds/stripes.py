"""Cases for striped locks, which acquire any free one of several locks, the stripes."""

from __future__ import annotations

from collections import Counter as Tally
from enum import Enum
from functools import partial
from typing import Any

import pytest

from ....core.keys import glob_escape, stripe_name
from ....errors import LockLost, LockNotAcquired, LockNotHeld
from ..exclusion import WAKE, Counter, check_nested
from ..harness.clients import TEST_TIMEOUT, Client
from ..harness.fixtures import Fixtures, Spawn, eventually, until_someone_waits
from ..leases import holds_renewed, is_renewed


class StripedCases(Fixtures):
    """Cases for striped()."""

    features = ("striped",)

    @pytest.mark.parametrize("stripes", [1, 4])
    def test_stripes(self, client: Client, name: str, stripes: int) -> None:
        """With n stripes, n handles can hold one stripe each. One more handle acquires the stripe that is released."""
        locks = [client.striped(name, stripes) for _ in range(stripes)]
        late = client.striped(name, stripes)
        assert late.stripe is None
        assert not late.locked()
        assert all(lock.acquire(False) for lock in locks)
        assert {lock.stripe for lock in locks} == set(range(stripes))
        assert late.locked()
        assert not late.acquire(False)
        assert all(lock.owned() and lock.locked() for lock in locks)
        given = locks[-1].stripe
        locks[-1].release()
        assert locks[-1].stripe is None
        with pytest.raises(LockNotHeld):
            locks[-1].release()
        assert eventually(lambda: late.acquire(False))
        assert late.stripe == given

    def test_stripe_self_deadlock_is_refused(self, client: Client, name: str) -> None:
        """acquire() of a stripe's own name without a timeout raises an error if the same thread or task holds it."""
        again = partial(client.backend.lock, stripe_name(name, 0))
        check_nested(client, client.backend.striped(name, 1), again, self.short)

    def test_stripes_begin_differently(self, client: Client, name: str) -> None:
        """Successive acquires get different stripes, even when all are free."""
        had = []
        for _ in range(4):
            with client.striped(name, 4) as lock:
                had.append(lock.stripe)
        assert sorted(had) == [0, 1, 2, 3]

    def test_stripes_of_an_enum(self, client: Client, name: str) -> None:
        """A name that is a str and an Enum has the same stripes as its text."""
        member: Any = Enum("Names", {"STOCK": name}, type=str).STOCK  # type: ignore[attr-defined]
        with client.striped(member, 1):
            assert not client.lock(stripe_name(name, 0)).acquire(False)

    def test_stripes_are_locks(self, client: Client, name: str) -> None:
        """A stripe is listed, described and force released under its own name.

        A lock with that name is the same lock.
        """
        with pytest.raises(LockLost), client.striped(name, 2, owner="buyer", fencing=True) as lock:
            stripe = stripe_name(name, lock.stripe)
            rows = [*client.held(f"{{{glob_escape(name)}}}#*"), *filter(None, [client.describe(stripe)])]
            assert [(row.name, row.kind, row.owner.label) for row in rows] == 2 * [(stripe, "striped", "buyer")]
            assert not client.lock(stripe).acquire(False)
            assert lock.fencing_token > 0
            assert client.force_release(stripe)
            assert not lock.owned()
        with client.lock(stripe), pytest.raises(LockNotAcquired):
            client.striped(name, 2, without={1 - int(stripe[-1])}, blocking=False).__enter__()

    def test_stripes_wake(self, client: Client, name: str, spawn: Spawn) -> None:
        """Each release of a stripe wakes a waiter, which acquires a stripe."""
        locks = [client.striped(name, 3) for _ in range(3)]
        for lock in locks:
            lock.acquire()
        late = [client.striped(name, 3) for _ in range(3)]
        waiting = [spawn(lock.acquire, True, TEST_TIMEOUT) for lock in late]
        for lock in locks:
            until_someone_waits(client, stripe_name(name, lock.stripe))
        for lock in locks:
            lock.release()
        assert all(each.result(WAKE) for each in waiting)
        assert {lock.stripe for lock in late} == {0, 1, 2}

    def test_stripes_wake_a_waiter_that_can_use_it(self, client: Client, name: str, spawn: Spawn) -> None:
        """A waiter for one particular stripe does not block waiters that can use the released stripe."""
        first, second = client.striped(name, 2, without={1}), client.striped(name, 2, without={0})
        first.acquire()
        second.acquire()
        picky = spawn(client.striped(name, 2, without={0}).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, stripe_name(name, 1))
        other = spawn(client.striped(name, 2).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, stripe_name(name, 0))
        first.release()
        assert other.result(WAKE)
        assert not picky.done()
        second.release()
        assert picky.result(WAKE)

    def test_stripes_exclusion_of_many_threads(self, client: Client, name: str, spawn: Spawn) -> None:
        """Many threads never hold the same stripe at the same time, and every acquire succeeds."""
        counters = [Counter() for _ in range(3)]

        def work() -> None:
            for _ in range(4):
                with client.striped(name, 3, blocking_timeout=TEST_TIMEOUT) as lock:
                    counters[lock.stripe].visit()

        for each in [spawn(work) for _ in range(8)]:
            each.result(2 * TEST_TIMEOUT)
        assert sum(counter.visits for counter in counters) == 32
        assert [counter.most for counter in counters] == [1, 1, 1]

    def test_switch_when_a_stripe_is_sold_out(self, client: Client, name: str, spawn: Spawn) -> None:
        """Each stripe protects a counter of items. Threads that call switch() at zero take all items, and no more."""
        stock = [5, 0, 1, 9]

        def buy() -> int | None:
            with client.striped(name, len(stock), blocking_timeout=TEST_TIMEOUT) as lock:
                while not stock[lock.stripe]:
                    if not lock.switch(without={index for index, left in enumerate(stock) if not left}):
                        return None
                stock[lock.stripe] -= 1
                return int(lock.stripe)

        sold = Tally(each.result(2 * TEST_TIMEOUT) for each in [spawn(buy) for _ in range(24)])
        assert stock == [0, 0, 0, 0]
        assert sold == {0: 5, 2: 1, 3: 9, None: 9}

    def test_switch(self, client: Client, name: str) -> None:
        """Each call of switch() moves to a stripe that the handle has not held yet.

        When there is none, switch() returns False, and the handle keeps its stripe.
        """
        with client.striped(name, 3, blocking=False) as lock:
            had, token = [lock.stripe], lock.token
            while lock.switch():
                had.append(lock.stripe)
            assert sorted(had) == [0, 1, 2]
            assert lock.token != token
            assert lock.owned()
        assert lock.stripe is None
        with lock:
            assert lock.switch(without={0, 1, 2}) is False
            assert lock.switch() is True

    def test_switch_when_all_others_are_held(self, client: Client, name: str) -> None:
        """If all other stripes are taken, switch() raises LockNotAcquired, and the handle holds no stripe."""
        with client.striped(name, 2, blocking=False) as lock, client.striped(name, 2) as other:
            stripe = lock.stripe
            with pytest.raises(LockNotAcquired) as caught:
                lock.switch()
            assert caught.value.name == name
            assert lock.stripe is None
            with pytest.raises(LockNotHeld):
                lock.switch()
            assert other.owned()
            assert eventually(lambda: client.describe(stripe_name(name, stripe)) is None)

    def test_switch_after_a_loss(self, client: Client, name: str) -> None:
        """If a handle has lost its stripe, switch() raises LockLost."""
        lock = client.striped(name, 2, ttl=self.short, auto_renew=False)
        lock.acquire()
        assert eventually(lambda: lock.lost)
        with pytest.raises(LockLost):
            lock.switch()

    def test_stripe_is_renewed(self, client: Client, name: str) -> None:
        """A held stripe is renewed automatically. A stripe without renewal ends."""
        lasting, dying, late = (
            client.striped(name, 2, ttl=self.renewable),
            client.striped(name, 2, ttl=self.short, auto_renew=False),
            client.striped(name, 2),
        )
        dying.acquire()
        assert holds_renewed(partial(lasting.acquire, timeout=TEST_TIMEOUT), partial(is_renewed, lasting))
        assert late.acquire(timeout=TEST_TIMEOUT)
        assert eventually(lambda: lasting.extend(20) > 10)  # with a renewal in flight, the earlier end counts
        with pytest.raises(LockLost):
            dying.release()

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((0,), ValueError),
            ((257,), ValueError),
            ((True,), TypeError),
            (("4",), TypeError),
            ((2, {0, 1}), ValueError),
        ],
    )
    def test_invalid_stripes(
        self, client: Client, name: str, arguments: tuple[Any, ...], error: type[Exception]
    ) -> None:
        """The number of stripes must be 1 to 256, and ``without`` must leave at least one stripe."""
        stripes, without = (*arguments, ())[:2]
        with pytest.raises(error, match="stripes"):
            client.striped(name, stripes, without=without)
