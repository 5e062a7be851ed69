"""ZooKeeperBackend under asyncio, without kazoo, and with invalid options."""

import asyncio
import subprocess
import sys
import time

import pytest

from django_redlock.errors import LockNotAcquired, LockUnavailable
from tests.support.service import poll

from .tools import PATIENCE, paused


@pytest.mark.parametrize("times", [1, 2])
def test_cancelled_while_the_server_hangs(own, connected, unique, times):
    """A task that is cancelled while its request is under way leaves no znode, even if it is cancelled twice."""
    backend = connected(own.hosts, session_timeout=30, connect_timeout=20, node_timeout=20)
    with backend.lock(unique):
        pass

    async def scenario():
        task = asyncio.create_task(backend.lock(unique).aacquire())
        await asyncio.to_thread(poll, lambda: backend._contenders, timeout=PATIENCE, what="a request under way")
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        own.resume()
        await asyncio.wait([task])
        assert task.cancelled()

    paused(own)
    asyncio.run(scenario())
    poll(lambda: not backend._contenders and backend.describe(unique) is None, timeout=PATIENCE, what="an empty line")
    with pytest.raises(LockNotAcquired), backend.lock(unique), backend.lock(unique, blocking=False):
        pass


WITHOUT_KAZOO = """
import sys
sys.modules["kazoo"] = None
from django_redlock.backends.zookeeper import ZooKeeperBackend
try:
    ZooKeeperBackend("127.0.0.1:2181")
except ModuleNotFoundError as error:
    print(error)
"""


def test_without_kazoo():
    """Without kazoo the module can be imported, and the backend's construction says what to install."""
    told = subprocess.run([sys.executable, "-c", WITHOUT_KAZOO], capture_output=True, text=True, check=True, timeout=60)
    assert "django-redlock[zookeeper]" in told.stdout


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
