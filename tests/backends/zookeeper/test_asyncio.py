"""ZooKeeperBackend under asyncio, without kazoo, and with invalid options."""

import asyncio
import subprocess
import sys
import time

import pytest

from django_redlock.errors import LockUnavailable
from tests.support.service import poll

from .tools import PATIENCE, paused

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
    assert all(isinstance(each, LockUnavailable) for each in outcomes)
    assert time.monotonic() - start < 18  # node_timeout: 20


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_tasks_end_at_once(own, backend, unique, times):
    """A cancelled task ends at once, also if it is cancelled twice, and its request is undone in the background."""
    tasks = [asyncio.create_task(backend.lock(unique).aacquire()) for _ in range(CROWD)]
    await asyncio.to_thread(poll, lambda: backend._contenders, timeout=PATIENCE, what="a request under way")
    for _ in range(times):
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
    done, _ = await asyncio.wait(tasks, timeout=15)  # node_timeout: 20
    assert all(task.cancelled() for task in done)
    assert len(done) == CROWD
    own.resume()
    await asyncio.to_thread(poll, lambda: not backend._contenders, timeout=PATIENCE, what="an empty line")
    assert await backend.lock(unique).aacquire(False)
