"""An event loop that the application blocks for longer than the node timeout."""

import asyncio
import contextlib
import time

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable

OPTIONS = {"ttl": 10, "node_timeout": 0.6, "quarantine": False}


@pytest.fixture(params=[1, 3], ids=["one", "three"])
def new_backend(request, own_nodes):
    """A backend on one server, or on three nodes."""
    places = [server.url for server in own_nodes(request.param)]
    return lambda: RedisBackend(places[0], **OPTIONS) if len(places) == 1 else RedlockBackend(places, **OPTIONS)


@pytest.mark.parametrize("connected", [False, True], ids=["cold", "connected"])
@pytest.mark.parametrize("turns", [2, 4, 6])
async def test_nodes_have_answered(new_backend, connected, turns):
    """After the application has blocked the event loop, replies that have arrived are read and the lock is granted."""

    async def acquired():
        backend = new_backend()
        async with asyncio.timeout(20):
            # For one server the loop has a connection of its own, and for several it uses those of threads.
            while connected and not all(row["ok"] for row in [*backend.health(), *await backend.ahealth()]):
                pass
        lock = backend.lock("stock")
        acquiring = asyncio.create_task(lock.aacquire())
        for _ in range(turns):
            await asyncio.sleep(0)
        time.sleep(2 * OPTIONS["node_timeout"])  # noqa: ASYNC251  (just that)
        with contextlib.suppress(LockUnavailable):
            await acquiring
            await lock.arelease()
            await backend.aclose()
            return True
        await backend.aclose()
        return False

    # Once more if the servers had no time to reply, either.
    assert await acquired() or await acquired() or await acquired()
