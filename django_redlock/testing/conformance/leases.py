"""Cases for leases: renewal, extension, expiry and loss."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ...errors import LockLost
from .harness.clients import TEST_TIMEOUT, Client
from .harness.fixtures import Fixtures, NewClient, eventually


def is_renewed(lock: Any, see: Callable[[str], Any] | None = None) -> bool:
    """Return whether the lease of ``lock`` is renewed: wait until its remaining time grows.

    Returns false if the lease is lost, or not renewed within `TEST_TIMEOUT` seconds. ``see(attribute)`` reads an
    attribute of the lock in the thread or task that holds the lock. By default this thread reads the attribute.
    """
    see = see or partial(getattr, lock)
    least = see("remaining")

    def grown() -> bool:
        nonlocal least
        least = min(least, see("remaining"))
        return bool(see("lost") or see("remaining") > least + 0.01)

    return bool(eventually(grown)) and not see("lost")


def holds_renewed(acquire: Callable[[], Any], renewed: Callable[[], bool]) -> bool:
    """Call ``acquire()`` and then ``renewed()``, until both return a true value. Return whether they did.

    Both are called again for up to `TEST_TIMEOUT` seconds: on a busy machine a lease may end before its renewal.
    """
    return bool(eventually(lambda: acquire() and renewed()))


class LeaseCases(Fixtures):
    """Cases with leases of `short` seconds, so that a test can wait for their end."""

    def lapse(self, client: Client, other: Client, name: str, **options: Any) -> tuple[Any, Any]:
        """Return a handle of ``client`` whose lease has expired, and a handle of ``other`` that now holds the lock.

        ``options``: options of the first handle.
        """
        first, second = client.lock(name, ttl=self.short, auto_renew=False, **options), other.lock(name)
        assert first.acquire(timeout=TEST_TIMEOUT)  # over a slow connection a late grant is released again
        assert second.acquire(timeout=TEST_TIMEOUT), "the lease doesn't end"
        return first, second

    def test_lease_ends_by_itself(self, client: Client, other: Client, name: str) -> None:
        """A lease without renewal ends. By the holder's clock it ends before another client can acquire the lock."""
        lock, _ = self.lapse(client, other, name)
        assert lock.lost is True
        assert lock.remaining == 0
        assert repr(lock).startswith("<unlocked ")
        with pytest.raises(LockLost) as caught:
            lock.check()
        assert caught.value.name == name

    @pytest.mark.parametrize("method", ["release", "extend"])
    def test_release_and_extend_after_the_end(self, client: Client, other: Client, name: str, method: str) -> None:
        """release() and extend() after the lease has expired raise LockLost. The next holder is unaffected."""
        lock, following = self.lapse(client, other, name)
        with pytest.raises(LockLost):
            getattr(lock, method)()
        assert lock.lost is True
        following.check()
        assert not client.lock(name).acquire(False)
        following.release()

    @pytest.mark.parametrize("method", ["release", "extend"])
    def test_release_and_extend_after_the_end_of_a_free_lock(self, client: Client, name: str, method: str) -> None:
        """release() and extend() after the lease has expired raise LockLost, even if the lock is still free."""
        lock = client.lock(name, ttl=self.short, auto_renew=False)
        lock.acquire()
        assert eventually(lambda: lock.lost)
        with pytest.raises(LockLost):
            getattr(lock, method)()
        assert client.lock(name).acquire(timeout=TEST_TIMEOUT)

    def test_lost_handle_acquires_again(self, client: Client, other: Client, name: str) -> None:
        """A handle that has lost its lock can acquire the lock again, without a release() in between."""
        lock, following = client.lock(name, auto_renew=False), other.lock(name)
        assert lock.acquire(timeout=TEST_TIMEOUT)
        with contextlib.suppress(LockLost):  # the answer may come after the end of so short a lease
            lock.extend(self.short)  # the next lease is long again
        assert following.acquire(timeout=TEST_TIMEOUT), "the lease doesn't end"
        following.release()
        assert lock.lost is True
        assert lock.acquire(timeout=TEST_TIMEOUT)
        assert lock.lost is False
        lock.check()
        lock.release()
        assert lock.lost is False

    def test_loss_in_a_block(self, client: Client, other: Client, name: str) -> None:
        """If a `with` block has lost its lease, its end raises LockLost. The next holder is unaffected."""
        following = other.lock(name)
        with pytest.raises(LockLost), client.lock(name, ttl=self.short, auto_renew=False):
            assert following.acquire(timeout=TEST_TIMEOUT)
        following.release()

    def test_loss_and_error_in_a_block(self, client: Client, other: Client, name: str) -> None:
        """If a `with` block has lost its lease and then raises an error, that error is raised, not LockLost."""
        with pytest.raises(ZeroDivisionError), client.lock(name, ttl=self.short, auto_renew=False):
            assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
            1 / 0  # noqa: B018

    def test_on_lost_warn(self, client: Client, other: Client, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """With on_lost="warn" the end of a `with` block after a loss raises nothing, and the loss is logged once."""

        def warnings() -> list[str]:
            said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
            return [each for each in said if name in each]

        with client.lock(name, ttl=self.short, auto_renew=False, on_lost="warn"):
            assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
        assert eventually(warnings)
        assert len(warnings()) == 1

    def test_on_lost_callable(self, client: Client, other: Client, name: str) -> None:
        """A callable as on_lost is called once with the handle, and the end of the `with` block raises nothing."""
        told: list[Any] = []
        with client.lock(name, ttl=self.short, auto_renew=False, on_lost=told.append) as lock:
            assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
            assert eventually(lambda: told)
        assert told == [getattr(lock, "_lock", lock)]
        assert told[0].name == name

    def test_on_lost_callable_at_once(self, client: Client, name: str) -> None:
        """on_lost is called as soon as the lease is lost, without any call by the holder."""
        told = threading.Event()
        lock = client.lock(name, ttl=self.short, auto_renew=False, on_lost=lambda _: told.set())
        lock.acquire()
        assert told.wait(TEST_TIMEOUT)
        assert lock.lost is True

    def test_on_lost_callable_that_fails(
        self, client: Client, other: Client, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An error of the on_lost callable is logged and has no other effect."""

        def fail(lock: Any) -> None:
            raise ZeroDivisionError(lock.name)

        with client.lock(name, ttl=self.short, auto_renew=False, on_lost=fail):
            assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
            assert eventually(lambda: any(record.exc_info for record in caplog.records))
        assert other.lock(name + "another").acquire(False)

    @pytest.mark.parametrize("where", ["lock", "backend"])
    def test_auto_renew(self, client: Client, new_client: NewClient, name: str, where: str) -> None:
        """With auto_renew on the lock, or on the backend as the default, a lease is renewed while the lock is held."""
        ttl = self.renewable
        if where == "lock":
            lock = new_client(auto_renew=False).lock(name, ttl=ttl, auto_renew=True)
        else:
            lock = new_client(ttl=ttl).lock(name)
        assert holds_renewed(partial(lock.acquire, timeout=TEST_TIMEOUT), partial(is_renewed, lock))
        assert not client.lock(name).acquire(False)
        lock.release()
        assert client.lock(name).acquire(False)

    def test_auto_renew_off(self, client: Client, new_client: NewClient, name: str) -> None:
        """auto_renew=False of the backend is the default of its locks."""
        lock = new_client(auto_renew=False, ttl=self.short).lock(name)
        lock.acquire()
        assert client.lock(name).acquire(timeout=TEST_TIMEOUT)
        assert lock.lost

    def test_extend_moves_the_end(self, client: Client, other: Client, name: str) -> None:
        """An extended lease outlives its original end. A shortened lease ends earlier."""
        lock, ends = client.lock(name, ttl=10 * self.short, auto_renew=False), []

        def in_time() -> bool:
            assert lock.acquire(timeout=TEST_TIMEOUT)
            ends.append(time.monotonic() + 10 * self.short)
            with contextlib.suppress(LockLost):  # on a busy machine the call may come too late
                return bool(lock.extend(60))
            return False

        assert eventually(in_time)
        assert eventually(lambda: time.monotonic() > ends[-1])
        assert not other.lock(name).acquire(False)
        lock.check()
        with contextlib.suppress(LockLost):  # the answer may come after the end of so short a lease
            lock.extend(self.short)
        assert other.lock(name).acquire(timeout=TEST_TIMEOUT)

    def test_max_hold(self, client: Client, other: Client, name: str) -> None:
        """max_hold ends a lease even if it is renewed."""
        lock = client.lock(name, ttl=2 * self.short, max_hold=3 * self.short)
        lock.acquire()
        assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
        assert lock.lost is True

    def test_collected_handle_is_not_renewed(self, client: Client, other: Client, name: str) -> None:
        """A lock is not renewed after its handle has been garbage-collected."""
        lock = client.lock(name, ttl=10 * self.short)
        lock.acquire()
        is_renewed(lock)  # on a busy machine the lease may end before
        del lock
        gc.collect()  # a client library may create a reference cycle when it connects
        assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
