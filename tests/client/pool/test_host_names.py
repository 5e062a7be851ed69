"""Look-ups of host names for asyncio."""

import asyncio
import socket
import threading

import pytest

from django_redlock.client.pool import host_names
from django_redlock.client.pool.host_names import _addresses
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT

WAIT = 20
HOST = "redis.example", 6379


class NameServer:
    """Stands in for `socket.getaddrinfo`: the outcome of each look-up, and an event that ends the look-up."""

    def __init__(self):
        self.look_up = socket.getaddrinfo
        self.answered = [threading.Event() for _ in range(3)]
        self.outcomes = ["192.0.2.1", "192.0.2.2", socket.gaierror(socket.EAI_AGAIN, "try again")]
        self.begun = threading.Semaphore(0)
        self.asked = 0

    def getaddrinfo(self, host, *args, **options):
        if host != HOST[0]:  # backends of earlier tests may connect, too
            return self.look_up(host, *args, **options)
        number = min(self.asked, 2)
        self.asked += 1
        self.begun.release()
        assert self.answered[number].wait(WAIT)
        if isinstance(self.outcomes[number], OSError):
            raise self.outcomes[number]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.outcomes[number], 6379))]


@pytest.fixture
def names(monkeypatch):
    names = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    monkeypatch.setattr(host_names, "SHARED_SECONDS", 60)
    yield names
    for event in names.answered:
        event.set()
    host_names._lookups.clear()


async def begin(names, count):
    """Return ``count`` tasks that need the address of the host, after the first of them has asked for the address."""
    tasks = [asyncio.create_task(_addresses(*HOST)) for _ in range(count)]
    await asyncio.to_thread(names.begun.acquire, timeout=WAIT)
    return tasks


def test_tasks_share_a_look_up(names):
    """Many tasks wait for one look-up. A task that is cancelled meanwhile ends it for none of the others."""

    async def scenario():
        first, *others = await begin(names, 100)
        first.cancel()
        await asyncio.wait([first])
        assert names.asked == 1
        names.answered[0].set()
        assert await asyncio.gather(*others) == [["192.0.2.1"]] * 99

    asyncio.run(asyncio.wait_for(scenario(), TEST_TIMEOUT))


def test_a_look_up_that_hangs(names, monkeypatch):
    """A task starts a look-up of its own if the last one has taken too long."""
    monkeypatch.setattr(host_names, "SHARED_SECONDS", 0)

    async def scenario():
        [hanging] = await begin(names, 1)
        [task] = await begin(names, 1)
        names.answered[1].set()
        assert await task == ["192.0.2.2"]
        assert not hanging.done()
        names.answered[0].set()
        assert await hanging == ["192.0.2.1"]

    asyncio.run(asyncio.wait_for(scenario(), TEST_TIMEOUT))


def test_outcomes_are_not_kept(names):
    """A look-up that has ended is not used again. Each task gets an error of its own."""

    async def scenario():
        names.outcomes.reverse()
        tasks = await begin(names, 2)
        names.answered[0].set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in errors] == [socket.gaierror] * 2
        assert errors[0] is not errors[1]
        assert not host_names._lookups  # it would keep the tasks' errors, and with them their frames
        [task] = await begin(names, 1)
        names.answered[1].set()
        assert await task == ["192.0.2.2"]

    asyncio.run(asyncio.wait_for(scenario(), TEST_TIMEOUT))
