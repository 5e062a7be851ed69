"""One short case for each kind of lock, from acquire to release.

It is short so that it can run over each kind of connection, such as TLS, and on several server versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from ...core.keys import glob_escape
from .exclusion import WAKE
from .harness.actors import Actors, InTask, InThread
from .harness.clients import TEST_TIMEOUT
from .harness.fixtures import NewBackend, eventually
from .shared_handles import MAKE, EachKind

# Constructors of locks with a single holder, by kind.
SINGLE: Mapping[str, Callable[..., Any]] = {
    **MAKE,
    "semaphore": partial(MAKE["semaphore"], limit=1),
    "striped": partial(MAKE["striped"], stripes=1),
}


class KindCases(EachKind):
    """Cases with two threads or tasks, for each kind of lock that the store supports."""

    @pytest.fixture(params=[InThread, InTask], ids=["sync", "async"])
    def users(self, request: pytest.FixtureRequest, new_backend: NewBackend) -> Iterator[Actors]:
        """`users()` returns a new thread, or a new task, that calls methods of locks. All share one backend."""
        everybody = Actors(request.param, new_backend())
        yield everybody
        everybody.close()

    def test_from_acquire_to_release(self, users: Actors, kind_of_lock: str, name: str) -> None:
        """One thread or task acquires and extends the lock, and the store lists the lock.

        The other thread or task waits until the release, which wakes it.
        """
        holder, waiter = users(), users()
        first, second = (SINGLE[kind_of_lock](users.backend, name, owner=each) for each in ("the first", "the second"))
        pattern = f"*{glob_escape(name)}*"
        assert holder.do(first, "acquire", False)
        assert not waiter.do(second, "acquire", False)
        rows = users.backend.held(pattern)
        assert {owner.label for row in rows for owner in row.holders} == {"the first"}
        waiting = waiter.begin(second, "acquire", True, TEST_TIMEOUT)
        assert eventually(lambda: any(row.waiters for row in users.backend.held(pattern)))
        assert holder.do(first, "extend", 20) > 10
        holder.do(first, "release")
        assert waiting.result(WAKE)
        waiter.do(second, "release")
        assert eventually(lambda: not users.backend.held(pattern))
