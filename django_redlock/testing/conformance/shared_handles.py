"""Cases for one handle that threads and tasks share.

Depending on its kind, a shared handle holds one lock at a time, or several permits or stripes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from ...backends.base import Backend
from ...errors import LockLost, LockNotAcquired, LockNotHeld
from .exclusion import WAKE, Counter
from .harness.actors import Actor, EventLoop, InTask, InThread
from .harness.clients import TEST_TIMEOUT
from .harness.fixtures import Fixtures, NewBackend, Spawn, eventually, in_child, needs

MAKE: Mapping[str, Callable[..., Any]] = {
    "mutex": lambda backend, name, **options: backend.lock(name, **options),
    "fair": lambda backend, name, **options: backend.lock(name, fair=True, **options),
    "rlock": lambda backend, name, **options: backend.rlock(name, **options),
    "rwlock": lambda backend, name, **options: backend.rwlock(name, **options).write,
    "semaphore": lambda backend, name, limit=3, **options: backend.semaphore(name, limit=limit, **options),
    "striped": lambda backend, name, stripes=3, **options: backend.striped(name, stripes, **options),
    "multilock": lambda backend, name, **options: backend.multilock([name, name + ":2"], **options),
}

PERMITS = "semaphore", "striped"  # kinds in which a shared handle may hold several permits or stripes
KIND_ARGUMENTS: Mapping[str, Collection[str]] = {
    "kind_of_lock": MAKE,
    "kind_of_mutex": MAKE.keys() - PERMITS,
    "kind_of_permit": PERMITS,
}


class EachKind(Fixtures):
    """Base class of cases that run once for each kind of lock.

    A case with an argument that is named in `KIND_ARGUMENTS` runs with each kind listed there that the store supports.
    """

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize the case with the kinds of locks. pytest calls this hook for each case."""
        for argument, kinds in KIND_ARGUMENTS.items():
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, [kind for kind in sorted(kinds) if kind not in self.lacks])


class SharedHandleCases(EachKind):
    """Cases with one handle and several threads or tasks."""

    @pytest.fixture
    def shared_store(self, new_backend: NewBackend) -> Iterator[Backend]:
        """The backend that threads and tasks share."""
        backend = new_backend()
        yield backend
        backend.close()

    @pytest.fixture
    def make(self, kind_of_mutex: str, shared_store: Backend, name: str) -> Callable[..., Any]:
        """`make(**options)` returns a handle that holds one lock at a time.

        A case with this fixture runs once for each kind of lock except semaphores and striped locks.
        """
        return partial(MAKE[kind_of_mutex], shared_store, name)

    @pytest.fixture(params=[(InThread,), (InTask,), (InThread, InTask)], ids=["threads", "tasks", "both"])
    def sharers(self, request: pytest.FixtureRequest, shared_store: Backend) -> Iterator[list[Actor]]:
        """Six threads or tasks that share the handle."""
        loop = EventLoop()
        everybody: list[Actor] = [kind(loop) for kind in request.param * 6][:6]
        yield everybody
        for person in everybody:
            person.close()
        loop.run(shared_store.aclose())
        loop.close()

    def test_shared_by_many(self, make: Callable[..., Any], sharers: list[Actor], spawn: Spawn) -> None:
        """Threads and tasks hold the lock one at a time, every acquire succeeds, and the lock is free at the end."""
        shared, counter = make(), Counter()

        def work(person: Actor) -> None:
            for _ in range(4):
                assert person.do(shared, "acquire", True, TEST_TIMEOUT)
                counter.visit()
                person.do(shared, "release")

        for each in [spawn(work, person) for person in sharers]:
            each.result(2 * TEST_TIMEOUT)
        assert (counter.visits, counter.most) == (24, 1)
        assert eventually(lambda: not sharers[0].do(make(), "locked"))

    def test_shared_handle_is_held(self, make: Callable[..., Any], sharers: list[Actor]) -> None:
        """While one thread or task holds the lock, acquire() of the others returns False or waits for the release."""
        shared, (first, second, third, *_) = make(), sharers
        assert first.do(shared, "acquire", False)
        token = first.see(shared, "token")
        assert not second.do(shared, "acquire", False)
        assert not second.do(shared, "acquire", True, self.short)
        assert first.see(shared, "token") == token
        assert first.do(shared, "owned")
        waiting = third.begin(shared, "acquire", True, TEST_TIMEOUT)
        first.do(shared, "release")
        assert waiting.result(WAKE)
        assert not first.do(shared, "acquire", False)
        third.do(shared, "release")

    def test_shared_handle_loses_its_lock(self, make: Callable[..., Any], sharers: list[Actor]) -> None:
        """When the holder loses the lock, the next waiter acquires it."""
        shared, (first, second, *_) = make(auto_renew=False), sharers
        assert first.do(shared, "acquire", True, TEST_TIMEOUT)
        token = first.see(shared, "token")
        with contextlib.suppress(LockLost):  # the answer may come after the end of so short a lease
            first.do(shared, "extend", self.short)
        assert second.begin(shared, "acquire", True, TEST_TIMEOUT).result(TEST_TIMEOUT)
        assert second.see(shared, "token") not in (None, token)

    def test_shared_handle_loses_its_lock_in_a_block(self, make: Callable[..., Any], spawn: Spawn) -> None:
        """A block that has lost its lock knows it, also after another thread has acquired the lock by the same handle.

        The block does not get the token of the other thread, with which a late write would pass.
        """
        shared, taken, checked = make(auto_renew=False), threading.Event(), threading.Event()

        def take() -> bool:
            with shared:
                taken.set()
                checked.wait(TEST_TIMEOUT)
                shared.check()
            return True

        with pytest.raises(LockLost), shared:
            token = shared.token
            with contextlib.suppress(LockLost):  # the answer may come after the end of so short a lease
                shared.extend(self.short)
            taking = spawn(take)
            assert taken.wait(TEST_TIMEOUT)
            with pytest.raises(LockLost):
                shared.check()
            assert (shared.lost, shared.remaining) == (True, 0)
            assert shared.token in (None, token)
            checked.set()
            assert taking.result(TEST_TIMEOUT)

    @pytest.fixture
    def several(self, kind_of_permit: str, shared_store: Backend, name: str) -> Callable[..., Any]:
        """`several(**options)` returns a handle that can hold three permits or stripes at once.

        A case with this fixture runs once for semaphores and once for striped locks.
        """
        return partial(MAKE[kind_of_permit], shared_store, name)

    @needs(*PERMITS)
    def test_each_acquire_takes_a_permit(self, several: Callable[..., Any], sharers: list[Actor]) -> None:
        """Each acquire() takes one permit, and each release() returns one, in any thread or task.

        A release() after the last permit was returned raises an error.
        """
        shared, (first, second, third, *_) = several(), sharers
        assert first.do(shared, "acquire", False)
        assert first.do(shared, "acquire", False)
        assert second.do(shared, "acquire", False)
        tokens = {first.see(shared, "token"), second.see(shared, "token")}
        assert len(tokens) == 2
        assert not third.do(shared, "acquire", False)
        waiting = third.begin(shared, "acquire", True, TEST_TIMEOUT)
        second.do(shared, "release")
        assert waiting.result(WAKE)
        for _ in range(3):  # includes the permits of other threads and tasks, which hold them outside of `with` blocks
            second.do(shared, "release")
        with pytest.raises(ValueError, match="more often than acquired") as caught:
            second.do(shared, "release")
        assert isinstance(caught.value, LockNotHeld)
        assert eventually(lambda: not first.do(several(), "locked"))

    @needs(*PERMITS)
    def test_each_block_has_a_permit(self, several: Callable[..., Any], spawn: Spawn) -> None:
        """Each `with` block of a shared handle has its own permit, even if it is nested or in another thread.

        A release by another thread never affects the permit of a block.
        """
        shared, inside, most = several(blocking_timeout=TEST_TIMEOUT), threading.Barrier(3), []

        def work() -> str:
            with shared:
                inside.wait(TEST_TIMEOUT)
                most.append(len(shared.holds))
                token = str(shared.token)
                shared.check()
            return token

        assert len({each.result(2 * TEST_TIMEOUT) for each in [spawn(work) for _ in range(6)]}) == 6
        assert max(most) <= 3  # the barrier has let three pass at once
        with shared, shared:
            outer = shared.token
            with shared, pytest.raises(LockNotAcquired):
                assert shared.token != outer
                several(blocking=False).__enter__()
            assert shared.token == outer
            with pytest.raises(ValueError, match="more often"):
                spawn(shared.release).result(TEST_TIMEOUT)
        assert shared.holds == []

    @needs(*PERMITS)
    def test_one_permit_is_lost(self, several: Callable[..., Any], spawn: Spawn) -> None:
        """A permit that one thread has lost does not affect the permits of the other threads."""
        shared, lasting, lost = several(ttl=3 * TEST_TIMEOUT, auto_renew=False), threading.Event(), threading.Event()

        def keep() -> bool:
            with shared:
                lasting.set()
                lost.wait(TEST_TIMEOUT)
                shared.check()
                return bool(shared.owned())

        keeping = spawn(keep)
        assert lasting.wait(TEST_TIMEOUT)
        with pytest.raises(LockLost), shared:
            shared.extend(self.short)
            assert eventually(lambda: shared.lost)
        lost.set()
        assert keeping.result(TEST_TIMEOUT)

    @needs(*PERMITS)
    def test_permit_acquired_again_in_a_block(self, several: Callable[..., Any]) -> None:
        """If a block releases its permit and acquires another, the end of the block releases the second permit."""
        shared = several()
        with shared:
            shared.release()
            assert shared.acquire(False)
        assert shared.holds == []
        with pytest.raises(LockNotHeld), shared:
            shared.release()

    @needs(*PERMITS)
    def test_shared_with_a_child(self, several: Callable[..., Any]) -> None:
        """A forked child's copy of a handle can't release the parent's permit, and acquires a permit of its own."""
        shared = several()
        assert shared.acquire()

        def child() -> bool:
            mine = shared.acquire(True, WAKE)
            shared.release()
            with contextlib.suppress(LockNotHeld):
                shared.release()
                return False
            return bool(mine)

        assert in_child(child)
        assert shared.owned()
        shared.release()
