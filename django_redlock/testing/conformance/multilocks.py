"""Several locks, all of them or none."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ...core.keys import glob_escape
from ...errors import LockLost, LockNotAcquired, LockNotHeld, LockNotSupported
from .exclusion import WAKE, Counter
from .harness.clients import TEST_TIMEOUT, Client
from .harness.fixtures import Fixtures, NewClient, Spawn, eventually, until_someone_waits
from .leases import is_renewed


class MultilockCases(Fixtures):
    """multilock()"""

    feature = "multilock"

    @pytest.fixture
    def taker(self, new_client: NewClient) -> Client:
        """A user of a store that has multilocks. One that hasn't says so, and that is all."""
        client = new_client()
        if "multilock" not in client.backend.kinds:
            with pytest.raises(LockNotSupported, match="multilock"):
                client.multilock(["x", "y"])
            pytest.skip("no multilocks here")
        return client

    @pytest.fixture
    def names(self, name: str) -> list[str]:
        """Three names that nobody else uses; on a Cluster they are in different slots."""
        return [f"{letter}:{name}" for letter in "abc"]

    def test_all_or_none(self, taker: Client, names: list[str]) -> None:
        """It holds each of the locks, or none when one of them is in the way."""
        both = taker.multilock(names)
        with taker.lock(names[1]):
            assert not both.acquire(False)
            assert both.locked()
            assert [taker.lock(each).locked() for each in names] == [False, True, False]
        assert eventually(lambda: both.acquire(False))
        assert both.owned()
        assert not any(taker.lock(each).acquire(False) for each in names)
        both.release()
        with pytest.raises(LockNotHeld):
            both.release()
        assert eventually(lambda: not any(taker.lock(each).locked() for each in names))
        assert not both.locked()

    def test_order_and_duplicates(self, taker: Client, names: list[str]) -> None:
        """The order of the names makes no difference, and a name that is given twice is one."""
        first, second, _ = names
        with taker.multilock([first, second, first]) as lock:
            assert lock.names == (first, second)
            assert not taker.multilock([second, first]).acquire(False)
        with taker.multilock(iter([second])) as lock:
            assert not taker.lock(second).acquire(False)

    def test_multilock_held(self, taker: Client, names: list[str]) -> None:
        """Each name is listed with this owner, and as what it is."""
        with taker.multilock(names, owner="transfer"):
            rows = [row for each in names for row in taker.held(glob_escape(each))]
            assert [(row.name, row.kind, row.owner.label) for row in rows] == [
                (each, "multilock", "transfer") for each in names
            ]
            assert {row.owner.extra["multilock"] for row in rows} == {3}

    def test_multilock_wakes(self, taker: Client, names: list[str], spawn: Spawn) -> None:
        """Who waits gets all as soon as what is in the way has gone, one after another."""
        obstacles = [taker.lock(names[0]), taker.multilock(names[1:])]
        for each in obstacles:
            each.acquire()
        lock = taker.multilock(names)
        waiting = spawn(lock.acquire, True, WAKE)
        until_someone_waits(taker, names[0])
        obstacles[0].release()
        assert eventually(lambda: sum(row.waiters for row in map(taker.describe, names) if row) or waiting.done())
        assert not waiting.done()
        assert taker.lock(names[0], blocking_timeout=TEST_TIMEOUT).acquire(False)
        obstacles[1].release()
        assert not waiting.done()
        taker.force_release(names[0])
        assert waiting.result(TEST_TIMEOUT)
        assert lock.owned()

    def test_multilock_passes_on(self, taker: Client, names: list[str], spawn: Spawn) -> None:
        """What a multilock that is still in want of another lock can't use goes to the next one who waits for it."""
        first, second = taker.lock(names[0]), taker.lock(names[1])
        first.acquire()
        second.acquire()
        multi = spawn(taker.multilock(names[:2]).acquire, True, WAKE)
        until_someone_waits(taker, names[0])
        plain = spawn(taker.lock(names[0]).acquire, True, WAKE)
        until_someone_waits(taker, names[0], 2)
        first.release()
        assert plain.result(TEST_TIMEOUT)
        assert not multi.done()
        taker.force_release(names[0])
        second.release()
        assert multi.result(TEST_TIMEOUT)

    def test_multilock_gives_up(self, taker: Client, names: list[str]) -> None:
        """Who waited in vain holds nothing, and nobody sees it waiting any more."""
        with taker.lock(names[2]):
            assert not taker.multilock(names).acquire(timeout=self.short)
            with pytest.raises(LockNotAcquired, match="is held"), taker.multilock(names, blocking=False):
                pass
            assert eventually(lambda: not any(taker.lock(each).locked() for each in names[:2]))
            assert eventually(lambda: (row := taker.describe(names[2])) is not None and not row.waiters)

    def test_multilock_extends(self, taker: Client, names: list[str]) -> None:
        """One call extends the leases of all."""
        with taker.multilock(names, ttl=20) as lock:
            assert lock.extend(10) > 9
            assert all(9 < (taker.describe(each).remaining or 0) <= 10 for each in names)  # type: ignore[union-attr]

    def test_multilock_is_renewed(self, taker: Client, names: list[str]) -> None:
        """All of them are renewed by themselves; what nobody renews ends, all of it."""
        ttl = 10 * self.short
        with taker.multilock(names[:2], ttl=ttl) as lasting:
            assert is_renewed(lasting)
            assert not any(taker.lock(each).acquire(False) for each in names[:2])
        dying = taker.multilock(names, ttl=self.short, auto_renew=False)
        dying.acquire()
        assert taker.multilock(names).acquire(timeout=TEST_TIMEOUT)
        with pytest.raises(LockLost):
            dying.release()

    def test_multilock_lost(self, taker: Client, names: list[str]) -> None:
        """When one of them is lost, all are: the holder is told, and the others are freed."""
        lock = taker.multilock(names, ttl=30)
        lock.acquire()
        assert taker.force_release(names[1])
        assert not lock.owned()
        with pytest.raises(LockLost):
            lock.extend()
        assert eventually(lambda: not any(taker.lock(each).locked() for each in names))
        lock.acquire()
        assert taker.force_release(names[2])
        with pytest.raises(LockLost):
            lock.release()
        assert eventually(lambda: not any(taker.lock(each).locked() for each in names))

    def test_multilock_fencing(self, taker: Client, names: list[str]) -> None:
        """One fencing token is larger than any that one of the names had, and smaller than those to come."""
        tokens = []
        for each in (names[:1], names[1:2], names, names[:1], names[2:]):
            with taker.multilock(each, fencing=True) as lock:
                tokens.append(lock.fencing_token)
        assert tokens[2] > max(tokens[:2])
        assert min(tokens[3:]) > tokens[2]

    def test_multilock_of_many(self, taker: Client, names: list[str], spawn: Spawn) -> None:
        """Many who name some of the locks in any order never share one, and never wait for each other in a circle."""
        counters = {each: Counter() for each in names}

        def work() -> None:
            for _ in range(4):
                mine = random.sample(names, random.randint(1, 3))
                with taker.multilock(mine, blocking_timeout=TEST_TIMEOUT):
                    for each in mine:
                        counters[each].visit()

        for each in [spawn(work) for _ in range(6)]:
            each.result(2 * TEST_TIMEOUT)
        assert {counter.most for counter in counters.values()} <= {0, 1}

    @pytest.mark.parametrize(
        ("names", "error"), [([], ValueError), ("ab", TypeError), ([1], TypeError), ([""], ValueError)]
    )
    def test_senseless_names(self, taker: Client, names: Any, error: type[Exception]) -> None:
        """A multilock has a list of names that locks can have."""
        with pytest.raises(error, match="name"):
            taker.multilock(names)
