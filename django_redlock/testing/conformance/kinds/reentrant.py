"""Cases for reentrant locks: the threads, tasks and processes that count as one holder."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ....backends.base import Backend
from ....core.keys import glob_escape
from ....errors import LockLost, LockNotHeld
from ..exclusion import WAKE, Counter
from ..harness.clients import TEST_TIMEOUT
from ..harness.fixtures import PROCESSES, Fixtures, NewBackend, Spawn, eventually, in_child, needs, until_someone_waits


class ReentrantCases(Fixtures):
    """Cases for rlock()."""

    features = ("rlock",)

    @pytest.fixture
    def store(self, new_backend: NewBackend) -> Iterator[Backend]:
        """The backend of all locks in a case. It is closed after the case."""
        backend = new_backend()
        yield backend
        backend.close()

    @pytest.mark.parametrize("handles", [1, 2])
    def test_rlock_is_reentrant(self, store: Backend, name: str, spawn: Spawn, handles: int) -> None:
        """The holder can acquire the lock again, through the same or another handle.

        The lock is free when it has been released as often as it was acquired.
        """
        first = store.rlock(name)
        second = first if handles == 1 else store.rlock(name)

        def others_chance() -> Any:
            lock = store.rlock(name)
            took = lock.acquire(False)
            if took:
                lock.release()
            return took

        assert first.acquire(False)
        assert second.acquire(False)
        assert not spawn(others_chance).result(TEST_TIMEOUT)
        first.release()
        assert not spawn(others_chance).result(TEST_TIMEOUT)
        second.release()
        assert spawn(others_chance).result(TEST_TIMEOUT)
        with pytest.raises(LockNotHeld):
            second.release()

    def test_rlock_released_by_another(self, store: Backend, name: str, spawn: Spawn) -> None:
        """A thread that doesn't hold the lock can't release it, as with threading.RLock."""
        lock = store.rlock(name)
        with lock:
            with pytest.raises(LockNotHeld):
                spawn(lock.release).result(TEST_TIMEOUT)
            assert lock.owned()

    def test_rlock_condition(self, store: Backend, name: str, spawn: Spawn) -> None:
        """A condition may wait within nested `with` blocks of one handle. The lock is free after the outermost."""
        lock: Any = store.rlock(name)
        condition = threading.Condition(lock)
        with condition, condition, condition:
            condition.wait(self.short)
            lock.check()
        with pytest.raises(LockNotHeld):
            lock.release()
        assert spawn(store.rlock(name).acquire, True, TEST_TIMEOUT).result(WAKE)

    def test_rlock_acquired_anew_by_task(self, store: Backend, name: str) -> None:
        """A task may release the lock within nested `async with` blocks and acquire it again."""

        async def by_another() -> None:
            other = store.rlock(name)
            assert await other.aacquire(timeout=TEST_TIMEOUT)
            await other.arelease()

        async def main() -> None:
            async with store.rlock(name) as lock, lock:
                await lock.arelease()
                await lock.arelease()
                await asyncio.create_task(by_another())
                assert await lock.aacquire(timeout=TEST_TIMEOUT)
                assert await lock.aacquire(timeout=TEST_TIMEOUT)
            await asyncio.create_task(by_another())
            await store.aclose()

        asyncio.run(main())

    def test_rlock_by_task(self, store: Backend, name: str) -> None:
        """A task can acquire its lock again. Another task of the same thread is another holder."""

        async def main() -> None:
            async with store.rlock(name) as lock, lock, store.rlock(name):
                assert await asyncio.create_task(store.rlock(name).aacquire(False)) is False
                with pytest.raises(LockNotHeld):
                    await asyncio.create_task(lock.arelease())
            other = store.rlock(name)
            assert await asyncio.create_task(other.aacquire(False)) is True
            with pytest.raises(LockNotHeld):
                await other.arelease()
            await store.aclose()

        asyncio.run(main())

    @needs(PROCESSES)
    def test_rlock_in_a_child(self, store: Backend, name: str) -> None:
        """A forked child is another holder, although its thread has the same id."""
        with store.rlock(name) as lock:

            def child() -> tuple[bool, bool]:
                return lock.acquire(False), store.rlock(name).acquire(False)

            assert in_child(child) == (False, False)
            lock.check()

    def test_rlock_exclusion_of_many_threads(self, store: Backend, name: str, spawn: Spawn) -> None:
        """Many threads with nested `with` blocks of one shared handle never hold the lock at the same time."""
        counter, shared = Counter(), store.rlock(name)

        def work() -> None:
            for _ in range(5):
                with shared, shared:
                    counter.visit()

        for each in [spawn(work) for _ in range(6)]:
            each.result(TEST_TIMEOUT)
        assert (counter.visits, counter.most) == (30, 1)

    def test_rlock_wakes(self, store: Backend, name: str, spawn: Spawn) -> None:
        """A waiter acquires the lock with the last release, not before."""
        outer, inner = store.rlock(name), store.rlock(name)
        outer.acquire()
        inner.acquire()
        waiting = spawn(store.rlock(name).acquire, True, TEST_TIMEOUT)
        until_someone_waits(store, name)
        inner.release()
        assert not waiting.done()
        outer.release()
        assert waiting.result(WAKE)

    def test_rlock_lost(self, store: Backend, name: str) -> None:
        """In a `with` block that has lost the lock, extend() and acquire() raise LockLost.

        A later block can acquire the lock again.
        """
        lock = store.rlock(name)
        with pytest.raises(LockLost), lock:
            store.force_release(name)
            with pytest.raises(LockLost):
                lock.extend()
            lock.acquire()
        with lock:
            lock.check()

    def test_rlock_ends(self, store: Backend, name: str, spawn: Spawn) -> None:
        """The lease of a handle without renewal ends by itself. The leases of the thread's other handles continue."""
        long, short = store.rlock(name), store.rlock(name, ttl=self.short, auto_renew=False)
        long.acquire()
        short.acquire()
        assert eventually(lambda: not short.owned())
        assert long.owned()
        assert not spawn(store.rlock(name).acquire, False).result(TEST_TIMEOUT)
        long.release()
        assert spawn(store.rlock(name).acquire, False).result(TEST_TIMEOUT)

    def test_rlock_held(self, store: Backend, name: str) -> None:
        """held() lists the lock once, as an rlock, with one owner for each handle that holds the lock."""
        with store.rlock(name, owner="outer") as lock:
            (row,) = store.held(glob_escape(name))
            assert (row.kind, row.owner.label, row.owner.pid) == ("rlock", "outer", os.getpid())
            assert lock.owned()
            with store.rlock(name, owner="inner"):
                (row,) = store.held(glob_escape(name))
                assert sorted(owner.label for owner in row.holders) == ["inner", "outer"]
                assert lock.owned()
        assert eventually(lambda: store.held(glob_escape(name)) == [])  # the last of several nodes replies later
