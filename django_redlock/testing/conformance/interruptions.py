"""Cases for forks, Ctrl-C and cancelled tasks, which must not leave a lock without an owner."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from ...errors import LockNotAcquired, LockNotHeld
from .exclusion import WAKE
from .harness.clients import TEST_TIMEOUT, Client
from .harness.fixtures import PROCESSES, Fixtures, NewBackend, Spawn, in_child, needs, until_someone_waits
from .leases import holds_renewed, is_renewed


def _refused(method: Any) -> bool:
    try:
        method()
    except LockNotHeld:
        return True
    return False


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork() here")
class ForkCases(Fixtures):
    """Cases for a forked child, which holds no locks but can use every handle and backend."""

    def test_child_holds_nothing(self, client: Client, other: Client, name: str) -> None:
        """In the child a handle holds nothing. It can't release, extend or check the parent's lock."""
        lock = client.lock(name)
        lock.acquire()

        def child() -> Any:
            mine = client.again().adopt(lock)
            says = mine.token, mine.owner, mine.fencing_token, mine.remaining, mine.lost
            refused = _refused(mine.release), _refused(mine.extend), _refused(mine.check)
            return says, refused, repr(mine).startswith("<unlocked"), mine.acquire(False)

        assert in_child(child) == ((None, None, None, 0, False), (True, True, True), True, self.one_process)
        lock.check()
        assert not other.lock(name).acquire(False)
        lock.release()
        assert other.lock(name).acquire(False)

    def test_child_leaves_the_block(self, client: Client, other: Client, name: str) -> None:
        """A child that leaves the parent's `with` block does not release the lock."""
        with client.lock(name) as lock:

            def child() -> Any:
                mine = client.again().adopt(lock)
                return _refused(lambda: getattr(mine, "_lock", mine).__exit__(None, None, None))

            assert in_child(child) is True
            assert not other.lock(name).acquire(False)

    def test_child_uses_handle_and_backend(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """After a fork by another thread, parent and child can use the same handle and backend at the same time."""
        lock = client.lock(name)
        lock.acquire()
        lock.release()

        def child() -> Any:
            mine = client.again().adopt(lock)
            tokens = []
            for _ in range(10):
                with mine:
                    tokens.append(mine.token)
            return tokens

        theirs: Future[list[str]] = spawn(in_child, child)
        ours: list[str] = []
        while not theirs.done() or len(ours) < 10:
            with lock:
                ours.append(lock.token)
        tokens = [*ours, *theirs.result(TEST_TIMEOUT)]
        assert len(tokens) >= 20
        assert self.one_process or len(set(tokens)) == len(tokens)
        assert other.lock(name).acquire(False)

    def test_child_renews_its_locks(self, client: Client, name: str) -> None:
        """The child renews the locks that the child acquires."""
        with client.lock(name):  # the parent's renewal thread is running

            def child() -> bool:
                mine = client.again().lock(name + "child", ttl=self.renewable)
                return holds_renewed(partial(mine.acquire, timeout=TEST_TIMEOUT), partial(is_renewed, mine))

            assert in_child(child)

    @needs(PROCESSES)
    def test_child_waits_for_its_parent(self, client: Client, name: str, spawn: Spawn) -> None:
        """A child that waits for its parent's lock acquires it after the release."""
        lock = client.lock(name)
        lock.acquire()
        waiting = spawn(in_child, lambda: client.again().adopt(lock).acquire(timeout=TEST_TIMEOUT))
        until_someone_waits(client, name)
        lock.release()
        assert waiting.result(WAKE) is True


# SIGINT may interrupt the store's client library between two steps that open or close a socket.
LEFT_OPEN = pytest.mark.filterwarnings("ignore:.*<(socket|ssl):pytest.PytestUnraisableExceptionWarning")


class InterruptionCases(Fixtures):
    """Cases for interrupted acquires, which must not leave a lock behind."""

    @pytest.fixture
    def interruptible(self) -> Iterator[None]:
        """Let SIGINT raise KeyboardInterrupt, even if the shell has set it to be ignored for a background job."""
        if threading.current_thread() is not threading.main_thread():
            pytest.skip("Python delivers signals to the main thread only")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)
        gc.collect()  # otherwise the leftovers would be reported in another test

    @pytest.mark.usefixtures("interruptible")
    @LEFT_OPEN
    @pytest.mark.parametrize("moment", ["waiting", "granted"])
    def test_keyboard_interrupt_of_a_waiter(
        self, new_backend: NewBackend, name: str, spawn: Spawn, moment: str
    ) -> None:
        """KeyboardInterrupt ends a waiting acquire(). A grant that arrives at that moment is released."""
        main = threading.main_thread()
        backend, there = new_backend(), new_backend()
        holder, waiter, following = there.lock(name), backend.lock(name), there.lock(name)

        def strike() -> None:
            until_someone_waits(there, name)
            if moment == "granted":
                holder.release()
            signal.pthread_kill(main.ident or 0, signal.SIGINT)

        for _ in range(1 if moment == "waiting" else 8):
            assert holder.acquire(timeout=WAKE)
            with pytest.raises(KeyboardInterrupt):
                struck = spawn(strike)
                waiter.acquire(timeout=TEST_TIMEOUT)
                struck.result(TEST_TIMEOUT)  # the grant came before the signal
            if moment == "waiting":
                holder.release()
            if waiter.token is not None:
                waiter.release()
            assert following.acquire(timeout=WAKE), "a lock that nobody owns"
            following.release()
        backend.close()
        there.close()

    def test_keyboard_interrupt_after_the_grant(self, new_backend: NewBackend, name: str) -> None:
        """KeyboardInterrupt after the grant, but before acquire() returns, releases the lock."""
        with contextlib.closing(new_backend()) as backend:

            def strike(_: Any) -> None:
                raise KeyboardInterrupt

            lock, backend.hook = backend.lock(name), strike
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
            backend.hook = None
            assert lock.token is None
            assert backend.lock(name).acquire(timeout=WAKE), "a lock that nobody owns"

    @pytest.mark.parametrize("moment", ["at once", "waiting", "granted"])
    def test_cancelled_acquire(self, new_backend: NewBackend, name: str, moment: str) -> None:
        """A task that is cancelled at any point of aacquire() leaves no lock behind."""
        backend = new_backend()

        async def cancel_after(steps: int) -> None:
            holder, waiter = backend.lock(name), backend.lock(name)
            if moment != "at once":
                assert await holder.aacquire(timeout=WAKE)
            task = asyncio.create_task(waiter.aacquire())
            if moment == "granted":
                await asyncio.to_thread(until_someone_waits, backend, name)
                await holder.arelease()
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            if moment == "waiting":
                await holder.arelease()
            if not task.cancelled():
                assert task.result()
                await waiter.arelease()
            following = backend.lock(name)
            assert await following.aacquire(timeout=WAKE), f"a lock that nobody owns, after {steps} steps"
            await following.arelease()

        async def scenario() -> None:
            for steps in range(20):
                await cancel_after(steps)
            await backend.aclose()

        asyncio.run(scenario())
        backend.close()

    def test_cancelled_in_the_block(self, new_backend: NewBackend, name: str) -> None:
        """A task that is cancelled inside `async with` releases the lock."""
        backend = new_backend()

        async def scenario() -> None:
            entered = asyncio.Event()

            async def work() -> None:
                async with backend.lock(name):
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert await backend.lock(name).aacquire(timeout=WAKE)
            with pytest.raises(LockNotAcquired):
                async with backend.lock(name, blocking=False):
                    raise AssertionError("the block was entered")
            await backend.aclose()

        asyncio.run(scenario())
        backend.close()
