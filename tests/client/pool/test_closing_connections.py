"""The connections of a backend that is closed, or garbage-collected without ``close()``."""

import asyncio
import contextlib
import gc
import warnings

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.service import poll


@pytest.fixture
def backend(proxies):
    """A backend on a majority of them, without a quarantine."""
    return RedlockBackend([each.url for each in proxies], node_timeout=10, quarantine=False)


def all_closed(proxies):
    poll(lambda: not any(each.connections for each in proxies), timeout=20, what="the end of every connection")


@pytest.mark.parametrize("released", [False, True], ids=["held", "released"])
def test_replies_are_outstanding(proxies, backend, released):
    """close() closes a connection on which a node still owes a reply, and the backend can be used again."""
    assert all(row["ok"] for row in backend.health())  # and so connected
    proxies[0].hold("replies")
    lock = backend.lock("stock", auto_renew=False)
    assert lock.acquire()
    if released:
        lock.release()
    backend.close()
    proxies[0].restore()
    all_closed(proxies)
    if not released:
        lock.release()
    with backend.lock("stock"):
        pass
    backend.close()
    all_closed(proxies)


@pytest.mark.parametrize("end", ["close", "aclose"])
def test_in_use_on_a_loop(proxy, redis_server, end):
    """A connection that a task uses during close() serves it to the end, and the event loop goes on."""
    backend, other = RedisBackend(proxy.url, node_timeout=10), RedisBackend(proxy.url, node_timeout=10)
    held, waiting = other.lock("stock"), backend.lock("stock")

    async def wait(client):
        acquired = asyncio.create_task(waiting.aacquire(timeout=20))
        await asyncio.to_thread(poll, lambda: client.info("clients")["blocked_clients"] == 1, timeout=20, what="it")
        if (closed := getattr(backend, end)()) is not None:
            await closed
        await asyncio.to_thread(held.release)
        await asyncio.to_thread(other.close)
        assert await acquired
        await waiting.arelease()
        await backend.aclose()
        await asyncio.to_thread(all_closed, [proxy])

    with redis_server.client() as client:
        held.acquire()
        asyncio.run(wait(client))


def test_still_dialling(proxies, backend):
    """A connection whose first reply arrives after close() is closed."""
    proxies[0].hold("replies")
    assert backend.lock("stock", auto_renew=False).acquire()  # by the votes of the others
    poll(lambda: proxies[0].connections, timeout=20, what="somebody who dials")
    backend.close()
    proxies[0].restore()
    all_closed(proxies)


def test_collected_without_close(redis_url, monkeypatch):
    """A backend that is garbage-collected without close() closes its connections, without a ResourceWarning."""
    complaints = []
    gc.collect()  # what tests before have left
    monkeypatch.setattr("sys.unraisablehook", lambda told: complaints.append(told.exc_value))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        backend = RedisBackend(redis_url, node_timeout=10)
        with backend.lock("stock"):
            pass
        (connection,) = backend.nodes[0].known_pool(None).idle_connections
        early = connection._sock
        del connection
        gc.collect()  # as it may happen during an exchange: what a frame holds comes first from now on
        del backend, early
        gc.collect()
    assert complaints == []


def connections_to(sentinel):
    """Return how many clients the Sentinels have, apart from each other."""
    clients = [client for each in sentinel.sentinels for client in each.client.client_list(_type="normal")]
    return sum(not client["name"].startswith("sentinel-") for client in clients)


@pytest.mark.parametrize("service", ["locks", "unknown"])
def test_connections_to_sentinels_are_closed(sentinel, backend_at, unique, service):
    """Connections to Sentinels are closed after each look-up, also if they don't know the master."""
    before = connections_to(sentinel)
    url = sentinel.url.replace("/locks/", f"/{service}/")
    backend = backend_at(url)
    for number in range(3):
        with pytest.raises(LockUnavailable) if service == "unknown" else contextlib.nullcontext():
            backend.lock(f"{unique}:{number}").acquire()
    poll(lambda: connections_to(sentinel) <= before, timeout=20, what="the end of the connections to Sentinels")


async def test_aclose_closes_connections_to_nodes(proxies, backend):
    async with backend.lock("stock"):
        pass
    poll(lambda: all(each.connections for each in proxies), timeout=20, what="a connection to each node")
    await backend.aclose()
    all_closed(proxies)
