"""Waiting for a permit on several nodes."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redlock import RedlockBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.locks import scripts_run

WAKE = 20


@pytest.fixture
def servers(start):
    """Five nodes."""
    return start(Group(RedisServer() for _ in range(5))).servers


@pytest.fixture
def backend(servers):
    backend = RedlockBackend([server.url for server in servers], node_timeout=5)
    assert set(backend.arm().values()) == {"armed"}
    yield backend
    backend.close()


def test_waiters_are_woken(backend, servers, woken_only):
    held = [backend.semaphore("exports", limit=2) for _ in range(2)]
    assert all(permit.acquire(timeout=WAKE) for permit in held)
    before = scripts_run(servers[0])
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(lambda _: backend.semaphore("exports", limit=2).acquire(timeout=2), range(4)))
        assert (
            scripts_run(servers[0]) - before < 100
        )  # at random intervals of 5 to 50 ms it would be 4 * 2 / 0.0275 * 2
        waiting = [pool.submit(backend.semaphore("exports", limit=2).acquire, True, 60) for _ in range(2)]
        while backend.describe("exports").waiters < 2:
            assert not any(each.done() for each in waiting)
        for permit in held:
            permit.release()
        assert all(each.result(WAKE) for each in waiting)
