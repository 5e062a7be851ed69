"""Cases for mutual exclusion and for waiting, with leases that don't end by themselves."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ...core.locks import self_deadlock
from ...errors import LockError, LockNotAcquired, LockNotHeld
from .harness.clients import TEST_TIMEOUT, AsyncClient, Client
from .harness.fixtures import Fixtures, NewBackend, NewClient, Spawn, eventually, needs, until_someone_waits

WAKE = 9  # seconds in which a wake-up must arrive, less than the time until a waiter polls without a wake-up


class Counter:
    """Counts visits. ``most``: the largest number of visits at the same time.

    A visit yields to other threads between reading and writing the count, so that overlapping visits are detected.
    """

    def __init__(self) -> None:
        self.visits = self.inside = self.most = 0

    def visit(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        visits = self.visits
        time.sleep(0)
        self.visits = visits + 1
        self.inside -= 1


def check_nested(client: Client, held: Any, again: Callable[..., Any], short: float) -> None:
    """Check the waits of a thread or task for a lock that it holds itself through another handle.

    A wait without a timeout must raise an error. A wait with the timeout ``short`` (seconds) must end without this
    error. ``held``: a free handle, to be acquired first. ``again()`` returns another handle of the same lock.
    """

    def blocking() -> None:
        with held:
            with pytest.raises(LockError, match=r"unless another thread or task releases it.*rlock") as caught:
                again().acquire()
            assert isinstance(caught.value, RuntimeError)
            assert not again().acquire(timeout=short)
            with pytest.raises(LockNotAcquired), again(blocking_timeout=short):
                pass

    async def asynchronous() -> None:
        async with held:
            with pytest.raises(LockError, match="rlock"):
                await again().aacquire()
            assert not await again().aacquire(timeout=short)

    if isinstance(client, AsyncClient):
        client.loop.run(asynchronous())
    else:
        blocking()


class ExclusionCases(Fixtures):
    """Cases with several clients, threads or handles of one lock."""

    def test_second_handle_is_excluded(self, client: Client, other: Client, name: str) -> None:
        """Only one of two handles holds the lock. The second handle acquires it after the release."""
        first, second = client.lock(name), other.lock(name)
        assert first.acquire(False)
        assert not second.acquire(False)
        assert not second.acquire(timeout=0)
        assert second.token is None
        first.release()
        assert second.acquire(False)
        assert not first.acquire(False)
        second.release()

    def test_names_are_independent(self, client: Client, other: Client, name: str) -> None:
        """Locks with different names are independent, even if the names are similar."""
        names = [name, name.upper(), name + " ", name + "*", name + ":waiters", name + "}", "{" + name, name + "\0"]
        held = [client.lock(each) for each in names]
        assert all(lock.acquire(False) for lock in held)
        assert not any(other.lock(each).acquire(False) for each in names)
        for lock in held:
            lock.release()

    def test_key_prefixes_are_independent(self, new_client: NewClient, name: str) -> None:
        """Backends with different key prefixes have separate locks."""
        with new_client().lock(name):
            assert new_client(key_prefix="another").lock(name).acquire(False)

    def test_not_reentrant(self, client: Client, name: str) -> None:
        """A second acquire through the handle that holds the lock fails. The held lock is unaffected."""
        with client.lock(name) as lock:
            token = lock.token
            assert not lock.acquire(False)
            assert not lock.acquire(timeout=0.01)
            assert lock.token == token
            lock.check()

    def test_release_by_another_handle(self, client: Client, other: Client, name: str) -> None:
        """A handle that doesn't hold the lock can't release another handle's lock."""
        with client.lock(name) as lock:
            with pytest.raises(LockNotHeld):
                other.lock(name).release()
            assert not other.lock(name).acquire(False)
            lock.check()

    def test_release_by_another_thread(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """A thread may release a lock that another thread has acquired, as with threading.Lock."""
        lock = client.lock(name)
        lock.acquire()
        spawn(lock.release).result(TEST_TIMEOUT)
        assert other.lock(name).acquire(False)

    def test_with_on_a_held_lock(self, client: Client, other: Client, name: str) -> None:
        """`with` on a held lock raises LockNotAcquired, which has the holder and the time until a retry makes sense."""
        with client.lock(name, ttl=10, owner="the first"):
            with pytest.raises(LockNotAcquired) as caught, other.lock(name, blocking=False):
                raise AssertionError("the block was entered")
            error = caught.value
            assert isinstance(error, TimeoutError)
            assert error.name == name
            assert error.retry_after is not None
            assert 0 < error.retry_after <= 10
            assert "the first" in error.holder.label  # a store may keep its own text for a holder
            assert "the first" in str(error)
            copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (our own)
            assert (copy.name, copy.retry_after, copy.holder) == (name, error.retry_after, error.holder)

    @pytest.mark.parametrize("where", ["lock", "backend"])
    def test_blocking_timeout(self, client: Client, new_client: NewClient, name: str, where: str) -> None:
        """`with` waits for blocking_timeout at least. The option is set on the lock, or as a default on the backend."""
        option = {"blocking_timeout": self.short}
        lock = new_client().lock(name, **option) if where == "lock" else new_client(**option).lock(name)
        with client.lock(name):
            start = time.monotonic()
            with pytest.raises(LockNotAcquired), lock:
                raise AssertionError("the block was entered")
            assert time.monotonic() - start >= self.short
        assert lock.acquire(timeout=TEST_TIMEOUT)

    def test_timeout(self, client: Client, other: Client, name: str) -> None:
        """acquire(timeout=…) on a lock that stays held returns False after the timeout, never earlier."""
        with client.lock(name):
            start = time.monotonic()
            assert other.lock(name).acquire(timeout=self.short) is False
            assert time.monotonic() - start >= self.short

    def test_timed_out_waiter_leaves_nothing(self, client: Client, other: Client, name: str) -> None:
        """A waiter whose wait times out leaves nothing behind. The lock is free as soon as its holder releases it."""
        with client.lock(name):
            assert not other.lock(name).acquire(timeout=0.01)
        assert client.lock(name).acquire(False)

    def test_waiter_is_woken(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """A waiter acquires the lock soon after its release."""
        lock, second = client.lock(name), other.lock(name)
        lock.acquire()
        waiting = spawn(second.acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, name)
        assert not waiting.done()
        lock.release()
        assert waiting.result(WAKE)
        assert not client.lock(name).acquire(False)
        second.release()

    def test_waiter_that_left_is_not_woken(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """A waiter that has stopped waiting does not use up the wake-up of the next waiter."""
        lock = client.lock(name)
        lock.acquire()
        assert not other.lock(name).acquire(timeout=self.short)
        waiting = spawn(other.lock(name).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, name)
        lock.release()
        assert waiting.result(WAKE)

    def test_waiters_one_after_another(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """All waiters acquire the lock, one at a time."""
        counter = Counter()

        def wait(user: Client) -> None:
            with user.lock(name, blocking_timeout=TEST_TIMEOUT):
                counter.visit()

        lock = client.lock(name)
        lock.acquire()
        waiting = [spawn(wait, user) for user in (client, other) * 4]
        until_someone_waits(client, name, 2)  # the threads of one client may share one waiter
        lock.release()
        for each in waiting:
            each.result(WAKE)
        assert (counter.visits, counter.most) == (8, 1)

    @pytest.mark.parametrize("shared", [True, False], ids=["one-handle", "a-handle-each"])
    def test_many_threads(self, client: Client, name: str, spawn: Spawn, shared: bool) -> None:
        """Many threads never hold the lock at the same time, with one shared handle or with a handle each."""
        counter, handle = Counter(), client.lock(name)

        def work() -> None:
            for _ in range(5):
                with handle if shared else client.lock(name):
                    counter.visit()

        for each in [spawn(work) for _ in range(8)]:
            each.result(TEST_TIMEOUT)
        assert (counter.visits, counter.most) == (40, 1)

    @needs("fencing")
    def test_fencing_tokens_grow_under_contention(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """Fencing tokens grow in the order in which several clients and threads acquire the lock."""
        tokens: list[Any] = []

        def work(user: Client) -> None:
            for _ in range(4):
                with user.lock(name, fencing=True) as lock:
                    tokens.append(lock.fencing_token)

        for each in [spawn(work, user) for user in (client, other) * 2]:
            each.result(TEST_TIMEOUT)
        assert len(tokens) == 16
        assert tokens == sorted(set(tokens))

    def test_min_hold(self, client: Client, other: Client, name: str) -> None:
        """A lock that is released before min_hold is over stays unavailable. Its handle no longer holds it."""
        start = time.monotonic()
        with client.lock(name, min_hold=self.short) as lock:
            pass
        assert lock.token is None
        assert lock.lost is False
        assert other.lock(name).acquire(timeout=TEST_TIMEOUT)
        assert time.monotonic() - start > self.short - 0.01

    def test_self_deadlock_is_refused(self, client: Client, name: str) -> None:
        """A thread or task that holds the lock gets an error if it acquires a second handle without a timeout."""
        check_nested(client, client.backend.lock(name), partial(client.backend.lock, name), self.short)
        assert client.lock(name).acquire(timeout=TEST_TIMEOUT)  # the lock is free, so acquire doesn't wait

    def test_wait_without_self_deadlock(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """A thread may wait without a timeout for another thread's lock, and for its own unrenewed lock."""
        with client.lock(name):
            waiting = spawn(client.lock(name).acquire)
            until_someone_waits(client, name)
        assert waiting.result(TEST_TIMEOUT)
        mine = client.lock(name + ":2", ttl=3 * self.short, auto_renew=False)
        assert mine.acquire()
        assert client.lock(name + ":2").acquire()

    def test_second_acquire_of_a_held_handle_waits(
        self,
        new_backend: NewBackend,
        name: str,
        spawn: Spawn,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A second acquire() of a held handle waits until another thread releases the lock.

        A warning about such a wait is logged, once for each handle.
        """
        monkeypatch.setattr(self_deadlock, "WARN_AFTER", 0.2)
        backend = new_backend()
        lock = backend.lock(name)

        def release_when_waited_for(more: float) -> None:
            until_someone_waits(backend, name)
            eventually(lambda: "through the same handle" in caplog.text)  # the store may list the waiter earlier
            time.sleep(more)  # a second warning would be logged meanwhile
            lock.release()

        for more in (0.0, 3 * self_deadlock.WARN_AFTER):
            lock.acquire()
            spawn(release_when_waited_for, more)
            assert lock.acquire()
            lock.release()
        assert caplog.text.count("through the same handle") == 1
        backend.close()
