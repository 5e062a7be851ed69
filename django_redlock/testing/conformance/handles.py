"""Cases for the methods of a handle that has no competitors.

Every backend must pass them, even a backend that grants every acquire.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import pickle
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ...errors import LockNotHeld
from .harness.clients import TEST_TIMEOUT, AsyncClient, Client, SyncClient
from .harness.fixtures import Fixtures, NewBackend, Spawn, needs


class HandleCases(Fixtures):
    """Cases for the methods of a handle that has no competitors."""

    def test_acquire_and_release(self, client: Client, name: str) -> None:
        """A handle reports that it holds the lock between acquire and release, and at no other time."""
        lock = client.lock(name, ttl=20)
        assert (lock.token, lock.owner, lock.fencing_token, lock.remaining, lock.lost) == (None, None, None, 0, False)
        assert lock.acquire() is True
        assert lock.token
        assert 0 < lock.remaining < 20
        assert lock.lost is False
        lock.check()
        lock.release()
        assert (lock.token, lock.owner, lock.fencing_token, lock.remaining, lock.lost) == (None, None, None, 0, False)

    def test_can_be_used_again(self, client: Client, name: str) -> None:
        """A handle can be acquired any number of times, with a new token each time."""
        lock = client.lock(name)
        tokens = set()
        for _ in range(3):
            assert lock.acquire(timeout=TEST_TIMEOUT)
            tokens.add(lock.token)
            lock.release()
        assert len(tokens) == 3

    def test_with_block(self, client: Client, name: str) -> None:
        """`with` yields the held lock and releases it at the end."""
        with client.lock(name) as held:
            assert held.token
            assert held.name == name
            held.check()
        assert held.token is None

    def test_error_of_the_body(self, client: Client, name: str) -> None:
        """`with` releases the lock when its block raises, and does not change the exception."""
        lock = client.lock(name)
        with pytest.raises(ZeroDivisionError) as caught, lock:
            1 / 0  # noqa: B018
        assert lock.token is None
        assert caught.value.__cause__ is None

    def test_released_in_the_body(self, client: Client, name: str) -> None:
        """A release inside `with` raises an error at the end of the block, as with threading.Lock.

        If the block raises an error, that error is raised instead.
        """
        lock = client.lock(name)
        with pytest.raises(LockNotHeld), lock:
            lock.release()
        with pytest.raises(ZeroDivisionError), lock:
            lock.release()
            1 / 0  # noqa: B018

    @pytest.mark.parametrize("method", ["release", "extend", "check"])
    def test_use_of_a_lock_that_is_not_held(self, client: Client, name: str, method: str) -> None:
        """Releasing, extending or checking a lock that is not held raises LockNotHeld, a RuntimeError."""
        lock = client.lock(name)
        for _ in range(2):
            with pytest.raises(LockNotHeld) as caught:
                getattr(lock, method)()
            assert isinstance(caught.value, RuntimeError)
            assert caught.value.name == name
            assert repr(name) in str(caught.value)
            lock.acquire()
            lock.release()

    def test_extend_replaces(self, client: Client, name: str) -> None:
        """extend() replaces the remaining time of the lease, never adds to it, and returns the new remaining time."""
        lock = client.lock(name, ttl=14, auto_renew=False)
        lock.acquire()
        assert 14 < lock.extend(28) < 28
        assert 14 < lock.extend(timedelta(seconds=28)) < 28
        assert 2 < lock.extend(8) < 8
        assert 1 < lock.remaining < 8
        assert 8 < lock.extend() < 14
        lock.release()

    def test_max_hold_bounds_extend(self, client: Client, name: str) -> None:
        """max_hold limits both ttl and extend()."""
        with client.lock(name, ttl=20, max_hold=10) as lock:
            assert lock.remaining < 10
            assert lock.extend(20) < 10

    def test_owner(self, client: Client, name: str) -> None:
        """The owner has the host, process, thread or task, the time of the acquire, and the caller's own fields."""
        with client.lock(name, owner="nightly run") as lock:
            assert lock.owner.pid == os.getpid()
            assert lock.owner.host
            assert lock.owner.since > 1e9
            assert lock.owner.label == "nightly run"
            assert bool(lock.owner.task) is isinstance(client, AsyncClient)
            assert "nightly run" in str(lock.owner)
        with client.lock(name, owner={"order": 17, "who": "\U0001f512 ä\n"}) as lock:
            assert lock.owner.extra == {"order": 17, "who": "\U0001f512 ä\n"}

    @needs("fencing")
    def test_fencing_tokens_grow(self, client: Client, other: Client, name: str) -> None:
        """With fencing=True each acquire gets a larger fencing token than the acquire before, through any handle.

        Without fencing=True there is no token.
        """
        tokens = []
        for user in (client, other) * 5:
            with user.lock(name, fencing=True) as lock:
                tokens.append(lock.fencing_token)
            with user.lock(name) as lock:
                assert lock.fencing_token is None
        assert tokens == sorted(set(tokens))

    def test_repr(self, client: Client, name: str) -> None:
        """The repr says locked or unlocked, as threading.Lock's does, and never contains the token."""
        lock = client.lock(name)
        assert repr(lock).startswith("<unlocked ")
        with lock:
            assert repr(lock).startswith("<locked ")
            assert name in repr(lock)
            assert lock.token not in repr(lock)
        assert repr(lock).startswith("<unlocked ")

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_copy_and_pickle_are_refused(
        self, new_backend: NewBackend, name: str, duplicate: Callable[[Any], Any]
    ) -> None:
        """A handle can't be copied or pickled, like threading.Lock, because both copies would release the same lock."""
        with contextlib.closing(new_backend()) as backend, pytest.raises(TypeError, match="cannot"):
            duplicate(backend.lock(name))

    def test_handle_can_be_collected(self, client: Client, name: str) -> None:
        """The package keeps no reference to a handle, not even for renewal."""
        lock = client.lock(name)
        lock.acquire()  # a client library may create a reference cycle when it connects
        lock.release()
        lock = client.lock(name)
        lock.acquire()
        ref = weakref.ref(getattr(lock, "_lock", lock))
        del lock
        assert ref() is None

    def test_acquire_in_a_coroutine(self, new_backend: NewBackend, name: str) -> None:
        """In a coroutine acquire() and `with` acquire nothing, and raise an error that names the asyncio variant."""
        backend = new_backend()

        async def mistake() -> None:
            lock = backend.lock(name)
            with pytest.raises(RuntimeError, match="aacquire"):
                lock.acquire()
            with pytest.raises(RuntimeError, match="async with"), lock:
                raise AssertionError("the block was entered")
            assert await lock.aacquire(False)
            await lock.arelease()
            await backend.aclose()

        asyncio.run(mistake())
        backend.close()

    def test_acquired_again_in_the_body(self, new_backend: NewBackend, name: str) -> None:
        """A lock that is released and acquired again inside `with` is released at the end, as with threading.Lock."""
        backend = new_backend()
        lock = backend.lock(name)

        async def again() -> None:
            async with lock:
                await lock.arelease()
                assert await lock.aacquire(False)
            assert lock.token is None
            await backend.aclose()

        with lock:
            lock.release()
            assert lock.acquire(False)
        assert lock.token is None
        asyncio.run(again())
        backend.close()

    def test_acquire_and_release_by_sync_and_async_code(self, new_backend: NewBackend, name: str) -> None:
        """A coroutine can acquire a handle that blocking code releases, and the other way round."""
        backend = new_backend()
        lock = backend.lock(name)
        assert asyncio.run(lock.aacquire())
        lock.release()
        assert lock.acquire()
        asyncio.run(lock.arelease())
        assert lock.token is None
        SyncClient(backend).close()

    def test_block_ends_in_another_thread(self, new_backend: NewBackend, name: str, spawn: Spawn) -> None:
        """A `with` block may be entered in one thread and left in another. The end of the block releases the lock."""
        backend = new_backend()
        lock = backend.lock(name)
        for _ in range(2):
            lock.__enter__()
            assert spawn(lock.__exit__, None, None, None).result(TEST_TIMEOUT) is None
            assert spawn(lock.__enter__).result(TEST_TIMEOUT) is lock
            lock.__exit__(None, None, None)
            assert lock.token is None
        backend.close()

    def test_block_ends_in_another_task(self, new_backend: NewBackend, name: str) -> None:
        """An `async with` block may be entered in one task and left in another. Its end releases the lock."""
        backend = new_backend()
        lock = backend.lock(name)

        async def swap() -> None:
            for _ in range(2):
                await lock.__aenter__()
                await asyncio.create_task(lock.__aexit__(None, None, None))
                await asyncio.create_task(lock.__aenter__())
                await lock.__aexit__(None, None, None)
                assert lock.token is None
            await backend.aclose()

        asyncio.run(swap())
        backend.close()
