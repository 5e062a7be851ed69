"""Blocking calls in a coroutine that would have to wait for something that the same event loop may have to do."""

import asyncio
import threading

import pytest

from tests.support.service import poll


def test_extend(backend, unique):
    """extend() raises RuntimeError while an extension of another task is in flight, and the lock stays held."""

    async def main():
        async with backend.lock(unique) as lock:
            extending = asyncio.create_task(lock.aextend())
            await asyncio.sleep(0)
            assert lock.hold._extension
            for call in (lock.extend, lock.hand_off):
                with pytest.raises(RuntimeError, match="event loop"):
                    call()
            assert await extending > 0
            assert lock.extend() > 0  # waits for the server only
        await backend.aclose()

    asyncio.run(main())


def test_wait_for_the_lead(backend, unique):
    """wait() of a candidate that does not lead yet raises RuntimeError."""

    async def main():
        async with backend.lock(unique), backend.leader(unique) as leader:
            with pytest.raises(RuntimeError, match="event loop"):
                leader.wait(1)
            assert not await leader.await_(0.01)
        await backend.aclose()

    asyncio.run(main())


def test_django_allow_async_unsafe(backend, unique, monkeypatch):
    """With DJANGO_ALLOW_ASYNC_UNSAFE, blocking calls block a running loop, and other threads of the queue wake them."""
    held, lock = backend.lock(unique), backend.lock(unique)

    def release_when_awaited():
        poll(lambda: backend.describe(unique).waiters, timeout=30, what="a waiter")
        held.release()

    async def main():
        with pytest.raises(RuntimeError, match="DJANGO_ALLOW_ASYNC_UNSAFE"):
            lock.acquire()
        monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        assert not lock.acquire(timeout=0.01)
        releasing = threading.Thread(target=release_when_awaited)
        releasing.start()
        with lock:
            releasing.join()
            assert lock.extend() > 0

    with held:
        asyncio.run(main())
        held.acquire()
