"""An ensemble that does not reply, and asyncio: no task waits for another task's request."""

import asyncio
import time

import pytest

from django_redlock.errors import LockUnavailable
from tests.support.service import poll

from .tools import PATIENCE, paused

CROWD = 60  # more tasks than threads


@pytest.fixture
def backend(own, connected, unique):
    """A backend whose server no longer replies."""
    backend = connected(own.hosts, session_timeout=30, connect_timeout=20, node_timeout=20)
    with backend.lock(unique):
        pass
    paused(own)
    yield backend
    own.resume()


async def test_timeouts_hold_for_a_crowd(backend, unique):
    """Of more tasks than threads each gives up at its own deadline, and the application's threads stay free."""
    start = time.monotonic()
    tasks = [asyncio.create_task(backend.lock(f"{unique}:{n}").aacquire(timeout=4)) for n in range(CROWD)]
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0) for _ in range(CROWD)))
    assert not any(task.done() for task in tasks)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in outcomes} == {LockUnavailable}
    assert time.monotonic() - start < 18  # node_timeout: 20


async def test_cancelled_tasks_end_at_once(own, backend, unique):
    """A cancelled task ends at once, and its request is undone in the background."""
    tasks = [asyncio.create_task(backend.lock(unique).aacquire()) for _ in range(CROWD)]
    await asyncio.to_thread(poll, lambda: backend._contenders, timeout=PATIENCE, what="a request under way")
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=15)  # node_timeout: 20
    assert all(task.cancelled() for task in done)
    assert len(done) == CROWD
    own.resume()
    await asyncio.to_thread(poll, lambda: not backend._contenders, timeout=PATIENCE, what="an empty line")
    assert await backend.lock(unique).aacquire(False)
