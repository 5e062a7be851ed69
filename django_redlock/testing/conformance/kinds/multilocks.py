"""Cases for multilocks: several locks that are acquired together or not at all."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from ....core.keys import glob_escape
from ....errors import LockLost, LockNotAcquired, LockNotHeld
from ..exclusion import WAKE, Counter, check_nested
from ..harness.clients import TEST_TIMEOUT, Client
from ..harness.fixtures import Fixtures, Spawn, eventually, until_someone_waits
from ..leases import holds_renewed, is_renewed


class MultilockCases(Fixtures):
    """Cases for multilock()."""

    features = ("multilock",)

    @pytest.fixture
    def names(self, name: str) -> list[str]:
        """Three names that no other test uses. On a Cluster they are in different slots."""
        return [f"{letter}:{name}" for letter in "abc"]

    def test_multilock_self_deadlock_is_refused(self, client: Client, name: str) -> None:
        """acquire() without a timeout raises an error if the same thread or task holds one of the names already."""
        again = partial(client.backend.multilock, [name + ":2", name])
        check_nested(client, client.backend.lock(name), again, self.short)

    def test_multilock_all_or_none(self, client: Client, names: list[str]) -> None:
        """A multilock holds all of its locks, or none if one of them has another holder."""
        both = client.multilock(names)
        with client.lock(names[1]):
            assert not both.acquire(False)
            assert both.locked()
            assert [client.lock(each).locked() for each in names] == [False, True, False]
        assert eventually(lambda: both.acquire(False))
        assert both.owned()
        assert not any(client.lock(each).acquire(False) for each in names)
        both.release()
        with pytest.raises(LockNotHeld):
            both.release()
        assert eventually(lambda: not any(client.lock(each).locked() for each in names))
        assert not both.locked()

    def test_multilock_order_and_duplicates(self, client: Client, names: list[str]) -> None:
        """The order of the names makes no difference, and a repeated name counts once."""
        first, second, _ = names
        with client.multilock([first, second, first]) as lock:
            assert lock.names == (first, second)
            assert not client.multilock([second, first]).acquire(False)
        with client.multilock(iter([second])) as lock:
            assert not client.lock(second).acquire(False)

    def test_multilock_held(self, client: Client, names: list[str]) -> None:
        """held() lists each name of a held multilock with the same owner, and as a multilock."""
        with client.multilock(names, owner="transfer"):
            rows = [row for each in names for row in client.held(glob_escape(each))]
            assert [(row.name, row.kind, row.owner.label) for row in rows] == [
                (each, "multilock", "transfer") for each in names
            ]
            assert {row.owner.extra["multilock"] for row in rows} == {3}

    def test_multilock_wakes(self, client: Client, names: list[str], spawn: Spawn) -> None:
        """A waiting multilock acquires all of its locks as soon as the last lock of another holder is released."""
        obstacles = [client.lock(names[0]), client.multilock(names[1:])]
        for each in obstacles:
            each.acquire()
        lock = client.multilock(names)
        waiting = spawn(lock.acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, names[0])
        obstacles[0].release()
        assert eventually(lambda: sum(row.waiters for row in map(client.describe, names) if row) or waiting.done())
        assert not waiting.done()
        assert client.lock(names[0], blocking_timeout=TEST_TIMEOUT).acquire(False)
        obstacles[1].release()
        assert not waiting.done()
        client.force_release(names[0])
        assert waiting.result(WAKE)
        assert lock.owned()

    def test_multilock_passes_on(self, client: Client, names: list[str], spawn: Spawn) -> None:
        """If a waiting multilock is woken but can't acquire all of its locks, the next waiter is woken instead."""
        first, second = client.lock(names[0]), client.lock(names[1])
        first.acquire()
        second.acquire()
        multi = spawn(client.multilock(names[:2]).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, names[0])
        plain = spawn(client.lock(names[0]).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, names[0], 2)
        first.release()
        assert plain.result(WAKE)
        assert not multi.done()
        client.force_release(names[0])
        second.release()
        assert multi.result(WAKE)

    def test_multilock_gives_up(self, client: Client, names: list[str]) -> None:
        """A multilock whose wait times out holds nothing, and is no longer listed as a waiter."""
        with client.lock(names[2]):
            assert not client.multilock(names).acquire(timeout=self.short)
            with pytest.raises(LockNotAcquired, match="is held"), client.multilock(names, blocking=False):
                pass
            assert eventually(lambda: not any(client.lock(each).locked() for each in names[:2]))
            assert eventually(lambda: (row := client.describe(names[2])) is not None and not row.waiters)

    def test_multilock_extends(self, client: Client, names: list[str]) -> None:
        """One call extends the leases of all names."""
        with client.multilock(names, ttl=60) as lock:
            assert 10 < lock.extend(30) < 30

            def remaining() -> list[float]:
                return [(row.remaining or 0) if (row := client.describe(each)) else 0 for each in names]

            assert eventually(lambda: all(10 < each <= 30 for each in remaining()))

    def test_multilock_is_renewed(self, client: Client, names: list[str]) -> None:
        """All names are renewed together. Without renewal all of them end."""
        ttl = self.renewable
        lasting = client.multilock(names[:2], ttl=ttl)
        assert holds_renewed(partial(lasting.acquire, timeout=TEST_TIMEOUT), partial(is_renewed, lasting))
        assert not any(client.lock(each).acquire(False) for each in names[:2])
        lasting.release()
        dying = client.multilock(names, ttl=self.short, auto_renew=False)
        dying.acquire()
        assert client.multilock(names).acquire(timeout=TEST_TIMEOUT)
        with pytest.raises(LockLost):
            dying.release()

    def test_multilock_lost(self, client: Client, names: list[str]) -> None:
        """After a force release of one name, extend() and release() raise LockLost and release the other names."""
        lock = client.multilock(names, ttl=30)
        lock.acquire()
        assert client.force_release(names[1])
        assert not lock.owned()
        with pytest.raises(LockLost):
            lock.extend()
        assert eventually(lambda: not any(client.lock(each).locked() for each in names))
        lock.acquire()
        assert client.force_release(names[2])
        with pytest.raises(LockLost):
            lock.release()
        assert eventually(lambda: not any(client.lock(each).locked() for each in names))

    def test_multilock_fencing(self, client: Client, names: list[str]) -> None:
        """A multilock's fencing token is larger than earlier tokens of all its names, and smaller than later tokens."""
        tokens = []
        for each in (names[:1], names[1:2], names, names[:1], names[2:]):
            with client.multilock(each, fencing=True) as lock:
                tokens.append(lock.fencing_token)
        assert tokens[2] > max(tokens[:2])
        assert min(tokens[3:]) > tokens[2]

    def test_multilock_exclusion_of_many_threads(self, client: Client, names: list[str], spawn: Spawn) -> None:
        """Many multilocks with overlapping names never deadlock, and no two of them hold the same name at once."""
        counters = {each: Counter() for each in names}

        def work() -> None:
            for _ in range(4):
                mine = random.sample(names, random.randint(1, 3))
                with client.multilock(mine, blocking_timeout=TEST_TIMEOUT):
                    for each in mine:
                        counters[each].visit()

        for each in [spawn(work) for _ in range(6)]:
            each.result(2 * TEST_TIMEOUT)
        assert {counter.most for counter in counters.values()} <= {0, 1}

    @pytest.mark.parametrize(
        ("names", "error"), [([], ValueError), ("ab", TypeError), ([1], TypeError), ([""], ValueError)]
    )
    def test_multilock_invalid_names(self, client: Client, names: Any, error: type[Exception]) -> None:
        """multilock() refuses an argument that is not a list of valid names."""
        with pytest.raises(error, match="name"):
            client.multilock(names)
