"""A release during an extension: a lock that the extension has restored does not stay behind."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.flow.requests import Batch, SendToAll
from django_redlock.errors import LockLost
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.locks import connected, held_on
from tests.support.service import poll

OPTIONS = {"ttl": 30, "max_ttl": 60, "node_timeout": 5}
KINDS = {
    "mutex": lambda client: client.lock("stock", auto_renew=False),
    "semaphore": lambda client: client.semaphore("stock", limit=1, auto_renew=False),
}


def held_up(backend, what="_acquire"):
    """Delay such a script until the second of these events is set; the first is set when it is about to be sent."""
    about_to, send = threading.Event(), threading.Event()
    perform, aperform = backend.perform, backend.aperform

    def wait(request):
        asks = request.requests if type(request) is SendToAll else [request]
        runs = [ask.calls[-1] if type(ask) is Batch else ask for ask in asks]
        if about_to.armed and getattr(runs[0], "script", None) and runs[0].script.name.endswith(what):
            about_to.set()
            assert send.wait(TEST_TIMEOUT)

    async def later(request):
        await asyncio.to_thread(wait, request)
        return await aperform(request)

    about_to.armed = False
    backend.perform, backend.aperform = lambda request: wait(request) or perform(request), later
    return about_to, send


@pytest.mark.parametrize("kind", KINDS)
def test_restored_vote_is_released(servers, client_of, kind):
    """A vote that an extension restores on one of three nodes after the release is released, too."""
    client = connected(client_of(RedlockBackend([server.url for server in servers], quarantine=False, **OPTIONS)))
    about_to, send = held_up(client.backend)
    lock = KINDS[kind](client)
    assert lock.acquire()
    poll(lambda: held_on(servers) == 3, timeout=20, what="votes of all nodes")
    lease = lock.hold.lease
    with servers[lease.nodes[0]].client() as direct:
        direct.flushall()
    about_to.armed = True
    with ThreadPoolExecutor(1) as pool:
        extending = pool.submit(lock.extend)
        assert about_to.wait(TEST_TIMEOUT)
        lock.release()
        send.set()
        assert extending.exception(TEST_TIMEOUT) is not None
    poll(lambda: not held_on(servers), timeout=20, what="nodes on which nothing is left")


def test_restored_lock_is_released(servers, client_of):
    client = client_of(RedisBackend(servers[0].url, quarantine=True, **OPTIONS))
    client.backend.arm()
    about_to, send = held_up(client.backend)
    lock = KINDS["mutex"](client)
    assert lock.acquire()
    with servers[0].client() as direct:
        direct.flushall()
    about_to.armed = True
    with ThreadPoolExecutor(1) as pool:
        extending = pool.submit(lock.extend)
        assert about_to.wait(TEST_TIMEOUT)
        with pytest.raises(LockLost):
            lock.release()
        send.set()
        assert extending.exception(TEST_TIMEOUT) is not None
    poll(lambda: not held_on(servers[:1]), timeout=20, what="a server on which nothing is left")


def test_a_lock_that_is_kept(servers, client_of):
    """min_hold keeps a lock for its time and no longer, even if the lock is extended meanwhile."""
    client = client_of(RedisBackend(servers[0].url, **OPTIONS))
    about_to, send = held_up(client.backend, "_extend")
    lock = client.lock("stock", min_hold=3, auto_renew=False)
    began = time.monotonic()
    assert lock.acquire()
    about_to.armed = True
    with ThreadPoolExecutor(1) as pool:
        extending = pool.submit(lock.extend)
        assert about_to.wait(TEST_TIMEOUT)
        lock.release()
        send.set()
        assert extending.exception(TEST_TIMEOUT) is not None
    with servers[0].client() as direct:
        assert 0 < direct.pttl("redlock:{stock}") <= 3_000  # a late extension has no effect
        poll(lambda: not direct.exists("redlock:{stock}"), timeout=20, what="the end of the time that it is kept")
    assert time.monotonic() - began >= 3
