"""Cases for fair locks, which are granted in order of arrival."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ....errors import LockNotSupported
from ..exclusion import WAKE, Counter, check_nested
from ..harness.clients import TEST_TIMEOUT, Client
from ..harness.fixtures import Fixtures, Spawn, until_someone_waits


class FairCases(Fixtures):
    """Cases for lock(fair=True)."""

    features = ("fair",)

    def test_fair_self_deadlock_is_refused(self, client: Client, name: str) -> None:
        """acquire() without a timeout raises an error if the same thread or task already holds the lock."""
        again = partial(client.backend.lock, name, fair=True)
        check_nested(client, again(), again, self.short)

    def test_fair_order(self, client: Client, name: str, spawn: Spawn) -> None:
        """Waiters acquire the lock in order of arrival."""
        first, order = client.lock(name, fair=True), []

        def wait(number: int) -> None:
            with client.lock(name, fair=True, blocking_timeout=TEST_TIMEOUT):
                order.append(number)

        first.acquire()
        waiting = []
        for number in range(6):
            waiting.append(spawn(wait, number))
            until_someone_waits(client, name, number + 1)
        assert order == []
        first.release()
        for each in waiting:
            each.result(TEST_TIMEOUT)
        assert order == [0, 1, 2, 3, 4, 5]

    def test_fair_waiter_that_leaves(self, client: Client, name: str, spawn: Spawn) -> None:
        """A waiter that leaves the queue does not delay the waiters behind it."""
        lock = client.lock(name, fair=True)
        lock.acquire()
        leaves = spawn(client.lock(name, fair=True).acquire, True, 5 * self.short)
        until_someone_waits(client, name)
        stays = spawn(client.lock(name, fair=True).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, name, 2)
        assert leaves.result(TEST_TIMEOUT) is False
        lock.release()
        assert stays.result(WAKE)

    def test_fair_exclusion_of_many_threads(self, client: Client, name: str, spawn: Spawn) -> None:
        """Many threads that acquire the lock repeatedly never hold it at the same time, and every acquire succeeds."""
        counter = Counter()

        def work() -> None:
            for _ in range(4):
                with client.lock(name, fair=True, blocking_timeout=TEST_TIMEOUT):
                    counter.visit()

        for each in [spawn(work) for _ in range(6)]:
            each.result(2 * TEST_TIMEOUT)
        assert (counter.visits, counter.most) == (24, 1)

    @pytest.mark.parametrize("holder", [True, False], ids=["held-fair", "held-unfair"])
    def test_fair_and_unfair(self, client: Client, name: str, spawn: Spawn, holder: bool) -> None:
        """Fair and unfair handles of one name are one lock: they exclude each other, and wake each other."""
        lock = client.lock(name, fair=holder)
        lock.acquire()
        assert not client.lock(name, fair=not holder).acquire(False)
        other = client.lock(name, fair=not holder)
        waiting = spawn(other.acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, name)
        lock.release()
        assert waiting.result(WAKE)
        assert not lock.acquire(False)
        other.release()

    def test_unfair_does_not_overtake_fair(self, client: Client, name: str, spawn: Spawn) -> None:
        """An unfair acquire() with a timeout does not overtake the fair waiters in the queue."""
        lock, order = client.lock(name, fair=True), []

        def wait(fair: bool) -> None:
            with client.lock(name, fair=fair, blocking_timeout=TEST_TIMEOUT):
                order.append(fair)

        lock.acquire()
        waiting = [spawn(wait, True)]
        until_someone_waits(client, name)
        waiting.append(spawn(wait, False))
        until_someone_waits(client, name, 2)
        lock.release()
        for each in waiting:
            each.result(TEST_TIMEOUT)
        assert order == [True, False]

    @pytest.mark.parametrize(("kind", "terms"), [("rlock", {}), ("semaphore", {"limit": 2})])
    def test_fair_is_refused_for_other_kinds(self, client: Client, name: str, kind: str, terms: Any) -> None:
        """rlock() and semaphore() raise LockNotSupported for fair=True."""
        if kind in client.backend.kinds:
            with pytest.raises(LockNotSupported, match="fair"):
                getattr(client.backend, kind)(name, fair=True, **terms)
