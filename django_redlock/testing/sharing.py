"""One handle that threads and tasks share: it is one lock, of whatever kind, and however many others may hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from ..backends.base import Backend
from .exclusion import WAKE, Counter
from .faces import PATIENCE, EventLoop
from .fixtures import Fixtures, NewBackend, Spawn, eventually, in_child, needs
from .people import InTask, InThread, Person

MAKE: Mapping[str, Callable[..., Any]] = {
    "mutex": lambda backend, name, **options: backend.lock(name, **options),
    "fair": lambda backend, name, **options: backend.lock(name, fair=True, **options),
    "rlock": lambda backend, name, **options: backend.rlock(name, **options),
    "rwlock": lambda backend, name, **options: backend.rwlock(name, **options).write,
    "semaphore": lambda backend, name, limit=3, **options: backend.semaphore(name, limit=limit, **options),
    "striped": lambda backend, name, stripes=3, **options: backend.striped(name, stripes, **options),
    "multilock": lambda backend, name, **options: backend.multilock([name, name + ":2"], **options),
}


class EachKind(Fixtures):
    """Cases that run once for each kind of lock that the store has: those with the argument ``kind_of_lock``."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrize it."""
        if "kind_of_lock" in metafunc.fixturenames:
            metafunc.parametrize("kind_of_lock", [kind for kind in sorted(MAKE) if kind not in self.lacks])


class SharedHandleCases(EachKind):
    """One handle, several users."""

    @pytest.fixture
    def shared_store(self, new_backend: NewBackend) -> Iterator[Backend]:
        """The backend that threads and tasks use together."""
        backend = new_backend()
        yield backend
        backend.close()

    @pytest.fixture
    def make(self, kind_of_lock: str, shared_store: Backend, name: str) -> Callable[..., Any]:
        """`make(**options)`: a handle of each kind that this store has."""
        if kind_of_lock not in shared_store.kinds and not (kind_of_lock == "fair" and shared_store.fair):
            pytest.skip(f"no {kind_of_lock} here")
        return partial(MAKE[kind_of_lock], shared_store, name)

    @pytest.fixture(params=[(InThread,), (InTask,), (InThread, InTask)], ids=["threads", "tasks", "both"])
    def sharers(self, request: pytest.FixtureRequest, shared_store: Backend) -> Iterator[list[Person]]:
        """Six of those who share it."""
        loop = EventLoop()
        everybody: list[Person] = [kind(loop) for kind in request.param * 6][:6]
        yield everybody
        for person in everybody:
            person.close()
        loop.run(shared_store.aclose())
        loop.close()

    def test_shared_by_many(self, make: Callable[..., Any], sharers: list[Person], spawn: Spawn) -> None:
        """They are in there one at a time, all get on, and nothing is left behind."""
        shared, counter = make(), Counter()

        def work(person: Person) -> None:
            for _ in range(4):
                assert person.do(shared, "acquire", True, PATIENCE)
                counter.visit()
                person.do(shared, "release")

        for each in [spawn(work, person) for person in sharers]:
            each.result(2 * PATIENCE)
        assert (counter.visits, counter.most) == (24, 1)
        assert eventually(lambda: not sharers[0].do(make(), "locked"))

    def test_shared_is_taken(self, make: Callable[..., Any], sharers: list[Person]) -> None:
        """Who can't wait is refused, who waits in vain too; what the first has stays as it is, until it is released."""
        shared, (me, you, late, *_) = make(), sharers
        assert me.do(shared, "acquire", False)
        token = me.see(shared, "token")
        assert not you.do(shared, "acquire", False)
        assert not you.do(shared, "acquire", True, self.short)
        assert me.see(shared, "token") == token
        assert me.do(shared, "owned")
        waiting = late.begin(shared, "acquire", True, PATIENCE)
        me.do(shared, "release")
        assert waiting.result(WAKE)
        assert not me.do(shared, "acquire", False)
        late.do(shared, "release")

    def test_shared_and_lost(self, make: Callable[..., Any], sharers: list[Person]) -> None:
        """When the one who has it loses it, the next of those who wait has it."""
        shared, (me, you, *_) = make(ttl=10 * self.short, auto_renew=False), sharers
        assert me.do(shared, "acquire", True, PATIENCE)
        token = me.see(shared, "token")
        me.do(shared, "extend", self.short)
        assert you.begin(shared, "acquire", True, PATIENCE).result(PATIENCE)
        assert you.see(shared, "token") not in (None, token)

    @needs("semaphore")
    def test_shared_with_a_child(self, shared_store: Backend, name: str, spawn: Spawn) -> None:
        """A forked child's copy of a handle does not wait for those of its parent who share it."""
        if "semaphore" not in shared_store.kinds:
            pytest.skip("no semaphores here")
        shared = shared_store.semaphore(name, limit=2)
        shared.acquire()
        waiting = [spawn(shared.acquire, True, PATIENCE) for _ in range(2)]
        eventually(lambda: len(shared._line) == 2)
        assert in_child(partial(shared.acquire, True, WAKE))
        for each in waiting:
            shared.release()
            assert each.result(PATIENCE)
