"""Cases for read-write locks: exclusion between readers and writers, and reentrance."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

import pytest

from ....backends.base import Backend
from ....core.keys import glob_escape
from ....errors import LockError, LockLost, LockNotAcquired, LockNotHeld
from ..exclusion import WAKE
from ..harness.actors import Actor, Actors
from ..harness.clients import TEST_TIMEOUT
from ..harness.fixtures import PROCESSES, NewBackend, eventually, in_child, needs, until_someone_waits
from ..leases import holds_renewed, is_renewed
from .readwrite_turns import ReadWriteTurnCases


class ReadWriteCases(ReadWriteTurnCases):
    """Cases for rwlock(), with two or three threads or with two or three tasks."""

    features = ("rwlock",)

    def test_rwlock_readers(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """Several threads or tasks can read at once, each with a lease of its own, even through one object.

        Readers exclude writers.
        """
        lock = actors.backend.rwlock(name)
        assert first.do(lock.read, "acquire", False)
        assert second.do(lock.read, "acquire", False)
        assert first.see(lock.read, "token") != second.see(lock.read, "token")
        assert not actors().do(lock.write, "acquire", False)
        first.do(lock.read, "release")
        assert not first.do(lock.read, "owned")
        assert second.do(lock.read, "owned")
        assert not actors().do(actors.backend.rwlock(name).write, "acquire", False)
        second.do(lock.read, "release")
        assert eventually(lambda: first.do(lock.write, "acquire", False))

    def test_rwlock_writer(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A writer excludes readers and other writers. The write side has the methods and properties of a lock."""
        lock = actors.backend.rwlock(name, ttl=20, fencing=True)
        assert first.do(lock.write, "acquire", False)
        assert not second.do(lock.read, "acquire", False)
        assert not second.do(lock.write, "acquire", False)
        assert second.do(lock.read, "locked")
        assert second.see(lock.write, "token") is None
        assert first.see(lock.write, "owner").pid == os.getpid()
        assert first.see(lock.write, "fencing_token") > 0
        assert 0 < first.see(lock.write, "remaining") <= 20
        assert first.do(lock.write, "extend", 10) <= 10
        first.do(lock.write, "release")
        with pytest.raises(LockNotHeld):
            first.do(lock.write, "release")
        assert eventually(lambda: second.do(lock.read, "acquire", False))

    def test_rwlock_no_upgrade(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A reader that tries to acquire the write side of any handle gets an error at once, and stays a reader."""
        lock = actors.backend.rwlock(name)
        first.do(lock.read, "acquire")
        for other in (lock, actors.backend.rwlock(name)):
            with pytest.raises(LockError, match="read") as caught:
                first.do(other.write, "acquire")
            assert not isinstance(caught.value, LockNotAcquired)
        first.see(lock.read, "check")
        assert second.do(lock.read, "acquire", False)
        second.do(lock.read, "release")
        first.do(lock.read, "release")
        assert eventually(lambda: first.do(lock.write, "acquire", False))

    def test_rwlock_downgrade(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A writer may also read, and stays a reader after it has released the write side.

        Then other readers are admitted.
        """
        lock = actors.backend.rwlock(name)
        first.do(lock.write, "acquire")
        assert first.do(lock.read, "acquire", False)
        reading = second.begin(lock.read, "acquire", True, TEST_TIMEOUT)
        until_someone_waits(actors.backend, name)
        assert not reading.done()
        first.do(lock.write, "release")
        assert reading.result(WAKE)
        assert first.do(lock.read, "owned")
        assert not actors().do(lock.write, "acquire", False)

    def test_rwlock_is_reentrant(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A holder may acquire its side again, and must release the side once for each acquire.

        No other thread or task can release it.
        """
        lock = actors.backend.rwlock(name)
        for side in (lock.read, lock.write):
            assert first.do(side, "acquire", False)
            assert first.do(side, "acquire", False)
            with pytest.raises(LockNotHeld):
                second.do(side, "release")
            first.do(side, "release")
            assert first.do(side, "owned")
            assert not second.do(lock.write, "acquire", False)
            first.do(side, "release")
            with pytest.raises(LockNotHeld):
                first.do(side, "release")
            assert eventually(lambda: second.do(lock.write, "acquire", False))
            second.do(lock.write, "release")

    def test_rwlock_reader_ends(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A reader whose lease expires no longer blocks writers. Other readers are unaffected."""
        short = actors.backend.rwlock(name, ttl=self.short, auto_renew=False)
        long = actors.backend.rwlock(name)
        first.do(long.read, "acquire")
        second.do(short.read, "acquire")
        assert eventually(lambda: not second.do(short.read, "owned"))
        with pytest.raises(LockLost):
            second.do(short.read, "release")
        assert first.do(long.read, "owned")
        assert not actors().do(long.write, "acquire", False)
        first.do(long.read, "release")
        assert actors().do(long.write, "acquire", True, TEST_TIMEOUT)

    def test_rwlock_is_renewed(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """Both sides are renewed automatically while they are held."""
        lock = actors.backend.rwlock(name, ttl=self.renewable)
        for side in (lock.read, lock.write):
            assert holds_renewed(
                partial(first.do, side, "acquire", True, TEST_TIMEOUT),
                partial(is_renewed, side, partial(first.see, side)),
            )
            assert not second.do(lock.write, "acquire", False)
            first.do(side, "release")

    def test_rwlock_force_release(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A force release ends the leases of all readers and wakes the waiters."""
        lost: list[Any] = []
        lock = actors.backend.rwlock(name, on_lost=lost.append)
        for person in (first, second):
            person.do(lock.read, "acquire")
        waiting = actors().begin(lock.write, "acquire", True, TEST_TIMEOUT)
        until_someone_waits(actors.backend, name)
        assert actors.backend.force_release(name)
        assert waiting.result(WAKE)
        for person in (first, second):
            with pytest.raises(LockLost):
                person.do(lock.read, "release")
        assert eventually(lambda: [each.name for each in lost] == [name, name])

    def test_rwlock_held(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """held() lists the lock once, with all of its readers and the mode "read"."""
        for person, label in ((first, "one"), (second, "two")):
            person.do(actors.backend.rwlock(name, owner=label).read, "acquire")

        def seen() -> Any:
            (row,) = actors.backend.held(glob_escape(name))
            return row.kind, sorted((owner.label, owner.extra.get("mode")) for owner in row.holders)

        assert eventually(lambda: seen() == ("rwlock", [("one", "read"), ("two", "read")]))
        actors.backend.force_release(name)
        writing = actors.backend.rwlock(name, owner="three")
        assert actors().do(writing.write, "acquire", True, TEST_TIMEOUT)
        assert seen() == ("rwlock", [("three", "write")])

    def test_rwlock_and_mutex(self, actors: Actors, first: Actor, name: str) -> None:
        """A name that is held as a rwlock can't be acquired as a mutex, and the other way round."""
        lock, mutex = actors.backend.rwlock(name), actors.backend.lock(name)
        first.do(lock.read, "acquire")
        with pytest.raises(LockError):
            actors().do(mutex, "acquire", False)
        first.do(lock.read, "release")
        assert eventually(lambda: actors.backend.describe(name) is None)
        assert actors().do(mutex, "acquire", False)
        with pytest.raises(LockError):
            first.do(lock.write, "acquire", False)

    def test_rwlock_min_hold(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A reader that releases the lock before min_hold is over still excludes writers until then.

        The former reader itself can't acquire the write side, either. Other readers are admitted.
        """
        long, short = actors.backend.rwlock(name, min_hold=20), actors.backend.rwlock(name + ":2", min_hold=self.short)
        for lock in (long, short):
            first.do(lock.read, "acquire")
            first.do(lock.read, "release")
        assert second.do(long.read, "acquire", False)
        assert not first.do(long.write, "acquire", False)
        second.do(long.read, "release")
        assert first.do(short.write, "acquire", True, TEST_TIMEOUT)

    def test_rwlock_blocks(self, new_backend: NewBackend, actors: Actors, name: str) -> None:
        """`with` and `async with` acquire and release either side, or raise LockNotAcquired if the side is refused."""
        backend = actors.backend
        lock = backend.rwlock(name, blocking=False)
        with lock.write as held, lock.read:
            held.check()

            async def refused() -> None:
                async with lock.read:
                    raise AssertionError("the block was entered")

            with pytest.raises(LockNotAcquired):
                asyncio.run(self._ending(backend, refused()))

        async def inside() -> bool:
            async with lock.write, lock.read as held:
                return bool(await held.aowned())

        assert asyncio.run(self._ending(backend, inside()))
        assert eventually(lambda: backend.describe(name) is None)

    @staticmethod
    async def _ending(backend: Backend, coroutine: Any) -> Any:
        try:
            return await coroutine
        finally:
            await backend.aclose()

    @needs(PROCESSES)
    def test_rwlock_in_a_child(self, actors: Actors, name: str) -> None:
        """A forked child is a separate reader and does not hold its parent's locks."""
        lock = actors.backend.rwlock(name)
        with lock.read:

            def child() -> Any:
                return lock.read.token, lock.write.acquire(False), lock.read.acquire(False)

            assert in_child(child) == (None, False, True)
            lock.read.check()
