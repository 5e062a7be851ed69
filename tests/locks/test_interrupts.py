"""Interrupts: a lock or permit that the handle does not list as a hold is released in the background."""

import asyncio
import contextlib
import threading

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import anywhere

KINDS = {
    "semaphore": lambda backend, name: backend.semaphore(name, limit=3, ttl=60),
    "striped": lambda backend, name: backend.striped(name, 3, ttl=60),
}


@pytest.fixture(params=KINDS)
def new_handle(request, redis_url, unique):
    """`new_handle()`: a handle for the same three permits, on a backend of its own."""
    with contextlib.ExitStack() as ends:

        def make():
            backend = ends.enter_context(contextlib.closing(RedisBackend(redis_url, node_timeout=5)))
            return KINDS[request.param](backend, unique)

        yield make


def test_cancelled_release(new_handle, monkeypatch):
    """A task that is cancelled while the first of two permits is released: the handle keeps the second."""
    handle, other = new_handle(), new_handle()
    assert all(handle.acquire(timeout=TEST_TIMEOUT) for _ in range(3))

    async def scenario():
        releasing = asyncio.Event()

        async def hangs(_request):
            releasing.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(handle.store, "aperform", hangs)
        task = asyncio.create_task(handle.arelease(2))
        await releasing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    # The task releases permits of the thread, because it has none itself.
    asyncio.run(scenario())
    monkeypatch.undo()
    assert len(handle.holds) == 2
    assert other.acquire(timeout=TEST_TIMEOUT)
    assert not other.acquire(False)
    assert handle.owned()
    handle.release(2)
    other.release()


def enter_and_leave(handle):
    with handle:
        pass


def release_all(handle):
    for _ in range(len(handle.holds)):
        handle.release()


OPERATIONS = {"acquire": lambda handle: handle.acquire(), "release": release_all, "with": enter_and_leave}


@pytest.mark.parametrize("kind", ["lock", *KINDS])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_interrupted_anywhere(unique, kind, operation):
    """After an interrupt anywhere, the handle lists what it holds, the rest is free soon, and other threads lock."""
    backend, permits = LocMemBackend(unique), 1 if kind == "lock" else 3
    make = KINDS.get(kind, lambda backend, name: backend.lock(name, ttl=60))
    for number, interrupt in enumerate(anywhere(least=20)):
        handle, other = (make(backend, f"{unique}:{number}") for _ in range(2))
        for _ in range(min(permits, 2) if operation == "release" else 0):
            handle.acquire()
        interrupt(lambda handle=handle: OPERATIONS[operation](handle))
        thread = threading.Thread(target=enter_and_leave, args=[backend.lock("another")], daemon=True)
        thread.start()
        thread.join(TEST_TIMEOUT)
        assert not thread.is_alive(), f"at step {number}"
        release_all(handle)
        assert all(other.acquire(timeout=TEST_TIMEOUT) for _ in range(permits)), f"at step {number}"
