"""Waiters of a local queue whose time is up while one of them asks a store that fails."""

import asyncio
import threading
from concurrent import futures

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.flow.requests import EvalScript
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT, AsyncClient, SyncClient
from django_redlock.testing.conformance.harness.fixtures import eventually

pytestmark = pytest.mark.usefixtures("woken_only")
WAITERS = 8


@pytest.fixture
def server(own_redis):
    return own_redis()


@pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
def client(request, server):
    client = request.param(RedisBackend(server.url, node_timeout=20))
    yield client
    client.close()


@pytest.fixture
def last_attempts(client, monkeypatch):
    """The tokens under which waiters named "late waiter" ask for the last time, and the event that they wait for."""
    backend, tokens, may_send = client.backend, set(), threading.Event()
    perform, aperform = backend.perform, backend.aperform

    def delay(request):
        if type(request) is EvalScript and request.script.name == "mutex_acquire" and b"late waiter" in request.args[1]:
            tokens.add(request.args[0])
            assert may_send.wait(3 * TEST_TIMEOUT)

    async def adelayed(request):
        await asyncio.to_thread(delay, request)
        return await aperform(request)

    monkeypatch.setattr(backend, "perform", lambda request: delay(request) or perform(request))
    monkeypatch.setattr(backend, "aperform", adelayed)
    yield tokens, may_send
    may_send.set()


def test_waiters_share_the_error(client, server, unique, last_attempts):
    """Waiters whose time is up get the error of the one that asks, and don't ask one after another."""
    queues, (tokens, may_send) = client.backend._local_queue._queues, last_attempts
    assert client.lock(unique, ttl=60).acquire()
    with futures.ThreadPoolExecutor(WAITERS + 1) as pool, server.client() as direct:
        leader = pool.submit(client.lock(unique).acquire, True, 3 * TEST_TIMEOUT)
        assert eventually(lambda: direct.info("clients")["blocked_clients"])
        waiting = [pool.submit(client.lock(unique, owner="late waiter").acquire, True, 0.05) for _ in range(WAITERS)]
        assert eventually(lambda: tokens)
        (queue,) = queues.values()
        assert eventually(lambda: len(queue.last_attempt.wake_events) == WAITERS - 1)
        server.kill()
        may_send.set()
        errors = [each.exception(3 * TEST_TIMEOUT) for each in waiting]
        server.start()
        assert all(isinstance(error, LockUnavailable) for error in errors)
        assert len(set(map(id, errors))) == WAITERS  # each has a traceback of its own
        assert {str(error) for error in errors} == {str(errors[0])}
        assert len(tokens) == 1
        futures.wait([leader], 4 * TEST_TIMEOUT)
    assert eventually(lambda: queues == {})
