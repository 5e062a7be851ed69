"""Cases for read-write locks under contention: order of readers and writers, and wake-ups."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ..exclusion import WAKE
from ..harness.actors import Actor, Actors, InTask, InThread
from ..harness.clients import TEST_TIMEOUT
from ..harness.fixtures import Fixtures, NewBackend, Spawn, eventually, until_someone_waits


def _is_refused(actor: Actor, lock: Any) -> bool:
    """Return whether the lock can't be acquired now. A lock that is acquired is released again."""
    if not actor.do(lock, "acquire", False):
        return True
    actor.do(lock, "release")
    return False


class Room:
    """Counts the readers and writers inside the lock.

    ``wrong``: the pair (writers, readers) for each time that a writer was not alone.
    """

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.readers = self.writers = self.visits = 0
        self.wrong: list[tuple[int, int]] = []

    def visit(self, *, writes: bool) -> None:
        with self.mutex:
            self.writers, self.readers = self.writers + writes, self.readers + (not writes)
            self.visits += 1
            if self.writers > 1 or (self.writers and self.readers):
                self.wrong.append((self.writers, self.readers))

    def leave(self, *, writes: bool) -> None:
        with self.mutex:
            self.writers, self.readers = self.writers - writes, self.readers - (not writes)


class ReadWriters(Fixtures):
    """Fixtures for read-write locks: threads or asyncio tasks that share one backend."""

    @pytest.fixture(params=[InThread, InTask], ids=["sync", "async"])
    def actors(self, request: pytest.FixtureRequest, new_backend: NewBackend) -> Iterator[Actors]:
        """`actors()` returns a new thread, or a new task, that calls methods of locks. All share one backend."""
        everybody = Actors(request.param, new_backend())
        yield everybody
        everybody.close()

    @pytest.fixture
    def first(self, actors: Actors) -> Actor:
        """The first thread or task."""
        return actors()

    @pytest.fixture
    def second(self, actors: Actors) -> Actor:
        """The second thread or task."""
        return actors()


class ReadWriteTurnCases(ReadWriters):
    """Cases with readers and writers that wait for each other."""

    features = ("rwlock",)

    def test_rwlock_exclusion_of_many(self, actors: Actors, name: str, spawn: Spawn) -> None:
        """With many readers and writers, a writer is always alone inside the lock, and every acquire succeeds."""
        lock, room = actors.backend.rwlock(name), Room()

        def work(person: Actor, *, writes: bool) -> None:
            side = lock.write if writes else lock.read
            for _ in range(4):
                assert person.do(side, "acquire", True, TEST_TIMEOUT)
                room.visit(writes=writes)
                room.leave(writes=writes)
                person.do(side, "release")

        for each in [spawn(work, actors(), writes=index % 3 == 0) for index in range(6)]:
            each.result(2 * TEST_TIMEOUT)
        assert (room.visits, room.wrong) == (24, [])

    def test_rwlock_writer_goes_first(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A waiting writer blocks new readers. A reader that already holds the lock may acquire it again."""
        lock = actors.backend.rwlock(name)
        first.do(lock.read, "acquire")
        writing = second.begin(lock.write, "acquire", True, TEST_TIMEOUT)
        until_someone_waits(actors.backend, name)
        late = actors()
        assert eventually(lambda: _is_refused(late, lock.read))  # on a quorum: as soon as enough nodes list the writer
        reading = late.begin(lock.read, "acquire", True, TEST_TIMEOUT)
        until_someone_waits(actors.backend, name, 2)
        assert first.do(actors.backend.rwlock(name).read, "acquire", False)
        assert first.do(lock.read, "acquire", False)
        first.do(lock.read, "release")
        assert not writing.done()
        assert not reading.done()
        actors.backend.force_release(name)
        assert writing.result(WAKE)
        assert not reading.done()
        second.do(lock.write, "release")
        assert reading.result(WAKE)

    def test_rwlock_wakes_readers(self, actors: Actors, first: Actor, name: str) -> None:
        """The release of a writer admits all waiting readers. No reader waits for another reader."""
        lock = actors.backend.rwlock(name)
        first.do(lock.write, "acquire")
        waiting = [actors().begin(lock.read, "acquire", True, TEST_TIMEOUT) for _ in range(4)]
        until_someone_waits(actors.backend, name, 4)
        first.do(lock.write, "release")
        assert all(each.result(WAKE) for each in waiting)

    def test_rwlock_wakes_writers(self, actors: Actors, first: Actor, name: str) -> None:
        """After the last reader's release, the waiting writers acquire the lock one by one, and then a reader can."""
        lock, got = actors.backend.rwlock(name), []
        first.do(lock.read, "acquire")
        writers = [actors() for _ in range(3)]
        waiting = {person: person.begin(lock.write, "acquire", True, TEST_TIMEOUT) for person in writers}
        until_someone_waits(actors.backend, name, 3)
        first.do(lock.read, "release")
        while waiting:
            inside = eventually(lambda: [person for person, begun in waiting.items() if begun.done()], WAKE)
            assert len(inside) == 1
            assert waiting.pop(inside[0]).result()
            got.append(inside[0])
            inside[0].do(lock.write, "release")
        assert first.do(lock.read, "acquire", True, WAKE)

    def test_rwlock_writer_gives_up(self, actors: Actors, first: Actor, second: Actor, name: str) -> None:
        """A writer whose wait has timed out no longer blocks readers."""
        lock = actors.backend.rwlock(name)
        first.do(lock.read, "acquire")
        writing = second.begin(lock.write, "acquire", True, 5 * self.short)
        until_someone_waits(actors.backend, name)
        assert actors().do(lock.read, "acquire", True, TEST_TIMEOUT)
        assert writing.result(TEST_TIMEOUT) is False
        assert actors().do(lock.read, "acquire", True, WAKE)
