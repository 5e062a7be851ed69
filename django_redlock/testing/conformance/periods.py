"""Cases for locks that are granted at most once in a period."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from ...core.lock_info import LockInfo
from ...errors import LockNotAcquired, LockNotSupported
from .harness.clients import TEST_TIMEOUT, Client
from .harness.fixtures import Fixtures, eventually

PERIOD = 600  # seconds: longer than max_ttl


class PeriodCases(Fixtures):
    """Cases for lock(every=…)."""

    features = ("every",)

    def state(self, client: Client, name: str) -> Any:
        """Return the state of the held lock ``name``: ``running``, ``done`` or ``None``.

        Fails unless the lock is unavailable for about one `PERIOD` from now.
        """
        held = client.describe(name)
        assert isinstance(held, LockInfo)
        assert held.remaining is not None
        assert abs(PERIOD - held.remaining) < 100
        return held.owner.extra.get("state")

    @pytest.mark.parametrize("fails", [False, True])
    def test_once_in_a_period(self, client: Client, other: Client, name: str, fails: bool) -> None:
        """After one acquire, every other acquire in the same period is refused at once, even if the work failed."""
        with contextlib.suppress(ZeroDivisionError), client.lock(name, every=PERIOD) as lock:
            assert self.state(client, name) == "running"
            assert lock.remaining < PERIOD / 2
            assert not other.lock(name, every=PERIOD).acquire(False)
            1 // (not fails)
        assert self.state(client, name) == "done"
        assert lock.token is None
        with pytest.raises(LockNotAcquired, match="was done") as caught, other.lock(name, every=PERIOD):
            pass
        assert abs(PERIOD - (caught.value.retry_after or 0)) < 100
        assert not other.lock(name).acquire(False)
        assert client.force_release(name)
        assert other.lock(name, every=PERIOD).acquire(False)

    def test_once_although_the_holder_dies(self, client: Client, other: Client, name: str) -> None:
        """A holder that doesn't renew its lease loses the lease. Still no other acquire succeeds in the same period."""
        lock = client.lock(name, every=PERIOD, ttl=10 * self.short, auto_renew=False)
        assert lock.acquire(timeout=TEST_TIMEOUT)
        assert eventually(lambda: lock.lost)
        assert not other.lock(name, every=PERIOD).acquire(False)
        assert eventually(lambda: self.state(client, name) == "done")

    def test_extended_within_a_period(self, client: Client, name: str) -> None:
        """extend() of a lock with every= does not shorten the period."""
        lock = client.lock(name, every=PERIOD, auto_renew=False)
        lock.acquire()
        assert lock.extend(20) < 20
        assert self.state(client, name) == "running"
        lock.release()
        assert self.state(client, name) == "done"

    def test_again_after_a_period(self, client: Client, other: Client, name: str) -> None:
        """The lock can be acquired again after the period."""
        with client.lock(name, every=4 * self.short):
            pass
        assert other.lock(name, every=4 * self.short).acquire(timeout=TEST_TIMEOUT)

    def test_work_longer_than_a_period(self, client: Client, other: Client, name: str) -> None:
        """Work that takes longer than a period excludes others until its end. Then the lock is free at once."""
        lock, following = client.lock(name, every=self.short), other.lock(name, every=self.short)
        lock.acquire()
        assert not following.acquire(timeout=4 * self.short)
        lock.release()
        assert following.acquire(False)

    def test_every_is_refused_for_other_kinds(self, client: Client, name: str) -> None:
        """every= raises an error for other kinds than lock(), for a fair lock, for hand_off(), and for a bad value."""
        with pytest.raises(LockNotSupported, match="fair"):
            client.lock(name, every=PERIOD, fair=True)
        for kind in set(client.backend.kinds) & {"rlock", "rwlock"}:
            with pytest.raises(LockNotSupported, match="every"):
                getattr(client.backend, kind)(name, every=PERIOD)
        with client.lock(name, every=PERIOD) as lock, pytest.raises(LockNotSupported, match="every"):
            lock.hand_off()
        for bad in (0, -1, float("inf"), "23h", True):
            with pytest.raises((TypeError, ValueError), match="every"):
                client.lock(name, every=bad)
