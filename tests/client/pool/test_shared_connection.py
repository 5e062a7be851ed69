"""All tasks of an event loop share one connection to a server, and none of them harms another."""

import asyncio
import contextlib
import gc
import os
import warnings

import pytest
from redis.exceptions import RedisError

from django_redlock.backends.redis import RedisBackend
from django_redlock.client.nodes.servers import NodeOptions
from django_redlock.client.resp import encode_command
from django_redlock.client.urls import node_for
from django_redlock.core.background.work import background
from django_redlock.errors import LockError
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from testproject.redis_server import RedisServer
from tests.support.service import until
from tests.support.tls import TlsRedis

SHORT = 0.5
ECHOES = [encode_command(b"ECHO", b"%d" % number) for number in range(3)]


@contextlib.asynccontextmanager
async def backend_at(url):
    backend = RedisBackend(url, node_timeout=TEST_TIMEOUT, auto_renew=False)
    yield backend
    await backend.aclose()
    backend.close()


async def pair(backend, name):
    async with backend.lock(name):
        pass


async def test_many_tasks_need_one_connection(proxy, unique):
    """200 tasks acquire and release on one connection, which stays open."""
    async with backend_at(proxy.url) as backend:
        for _ in range(2):
            await asyncio.gather(*(pair(backend, f"{unique}:{number}") for number in range(200)))
        assert proxy.accepted == 1


async def test_a_connection_stays_for_threads(redis_server, unique):
    """An event loop keeps its connection, but not the last one: the renewal thread needs one, too."""
    async with backend_at(f"{redis_server.url}?max_connections=1") as backend, backend.lock(unique):
        assert await asyncio.to_thread(backend.lock(f"{unique}:2").acquire, False)


@pytest.mark.parametrize("steps", range(8))
async def test_cancelled_task(proxy, redis_server, unique, steps):
    """A cancelled acquire is undone at any point, and the others get their locks on the same connection."""
    async with backend_at(proxy.url) as backend:
        locks = [backend.lock(f"{unique}:{number}") for number in range(3)]
        tasks = [asyncio.create_task(lock.aacquire()) for lock in locks]
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[1].cancel()
        assert await tasks[0]
        assert await tasks[2]
        await asyncio.wait([tasks[1]])
        with redis_server.client() as client:
            await until(lambda: not client.exists(f"redlock:{{{unique}:1}}"))
        await asyncio.gather(locks[0].arelease(), locks[2].arelease())
        assert proxy.accepted <= 2  # one more for the thread that releases what is left over


async def test_cancelled_while_the_server_is_silent(proxy, redis_server, unique):
    """A grant whose reply no task waits for is released on the same connection, and the connection stays in use."""
    async with backend_at(proxy.url) as backend:
        await pair(backend, unique)  # connects, and finds out that the server runs scripts
        proxy.hold("replies")
        acquiring, other = (asyncio.create_task(backend.lock(f"{unique}:{each}").aacquire()) for each in "ab")
        with redis_server.client() as client:
            await until(lambda: client.exists(f"redlock:{{{unique}:a}}"))
            acquiring.cancel()
            await asyncio.wait([acquiring])
            await until(lambda: not client.exists(f"redlock:{{{unique}:a}}"))
        proxy.restore()
        assert await other
        assert proxy.accepted <= 2


@pytest.mark.parametrize("plight", ["granted", "waiting"])
async def test_cancelled_in_the_child_of_a_fork(proxy, redis_server, unique, plight):
    """A child of a fork that cancels an inherited task takes no lock from its parent."""
    async with backend_at(proxy.url) as backend:
        await pair(backend, unique)  # connects, and finds out that the server runs scripts
        lock, holder = backend.lock(unique), RedisBackend(redis_server.url).lock(unique)
        if plight == "waiting":
            await holder.aacquire()
        else:
            proxy.hold("replies")
        acquiring = asyncio.create_task(lock.aacquire())
        with redis_server.client() as client:
            if plight == "waiting":
                await until(lambda: client.info("clients")["blocked_clients"])
            else:
                await until(lambda: client.exists(f"redlock:{{{unique}}}"))
        if (child := os.fork()) == 0:
            acquiring.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            while background.orphans:  # noqa: ASYNC110  (threads empty it)
                await asyncio.sleep(0)
            os._exit(0 if acquiring.cancelled() else 1)
        assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 0
        proxy.restore()
        if plight == "waiting":
            await holder.arelease()
        assert await acquiring
        assert await lock.aowned()
        await lock.arelease()


async def test_broken_connection(proxy, redis_server, unique):
    """When the connection breaks after the requests were executed, they are repeated and granted once."""
    async with backend_at(proxy.url) as backend:
        await pair(backend, unique)  # connects, and finds out that the server runs scripts
        proxy.hold("replies")
        locks = [backend.lock(f"{unique}:{number}") for number in range(10)]
        tasks = [asyncio.create_task(lock.aacquire()) for lock in locks]
        with redis_server.client() as client:
            await until(lambda: len(client.keys(f"redlock:{{{unique}:*}}")) == 10)
        proxy.cut()
        proxy.restore()
        assert all(await asyncio.gather(*tasks))
        assert [await lock.aowned() for lock in locks] == [True] * 10
        assert proxy.accepted == 2


async def test_error_of_one_request(proxy, redis_server, unique):
    """A request that the server refuses raises an error in its own task only."""
    with redis_server.client() as client:
        client.rpush(f"redlock:{{{unique}:1}}", "a list")
    async with backend_at(proxy.url) as backend:
        attempts = [backend.lock(f"{unique}:{number}").aacquire() for number in range(3)]
        first, refused, last = await asyncio.gather(*attempts, return_exceptions=True)
        assert isinstance(refused, LockError)
        assert first is last is True
        assert proxy.accepted == 1


async def test_connecting_task_is_cancelled(proxy, unique):
    """A task that is cancelled while the connection is opened does not take it from the others."""
    proxy.hold("replies")
    async with backend_at(proxy.url.replace("/0", "/1")) as backend:  # SELECT waits for its reply
        first, second = (asyncio.create_task(backend.lock(f"{unique}:{each}").aacquire()) for each in "ab")
        await until(lambda: proxy.accepted)
        first.cancel()
        await asyncio.wait([first])
        proxy.restore()
        assert await second
        assert proxy.accepted <= 2  # one more for the thread that releases what is left over


def test_loop_is_closed_with_requests_outstanding(proxy, unique, monkeypatch):
    """The next loop has a connection of its own, and what is left of the first loop raises nothing."""
    complaints = []
    gc.collect()  # what tests before have left
    monkeypatch.setattr("sys.unraisablehook", lambda told: complaints.append(told.exc_value))
    backend = RedisBackend(proxy.url, node_timeout=TEST_TIMEOUT, auto_renew=False)
    loop = asyncio.new_event_loop()
    assert not loop.run_until_complete(backend.lock(unique).alocked())  # connects
    proxy.hold("replies")
    acquiring = loop.create_task(backend.lock(unique).aacquire())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    proxy.restore()

    asyncio.run(pair(backend, f"{unique}:2"))
    acquiring._log_destroy_pending = False
    backend.close()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's own, for each connection of a loop closed so
        del acquiring, backend, loop
        gc.collect()
    assert complaints == []


# ── deadlines ────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def shared_at(proxy, monkeypatch):
    """A shared connection with a timeout of 1,000 s by the loop's clock, and a function that advances this clock."""
    loop, ahead = asyncio.get_running_loop(), [0.0]
    real = loop.time
    pool = node_for(proxy.url, NodeOptions(1000)).known_pool(None)
    shared = await pool.shared.open()
    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])

    async def advance(seconds):
        ahead[0] += seconds
        await asyncio.sleep(0.05)  # rounds of the loop, in which timers run

    yield shared, advance
    pool.clear()
    await asyncio.sleep(0)


async def test_each_request_has_its_own_deadline(proxy, monkeypatch):
    """A request that times out leaves the connection to a later request, and then the connection is closed."""
    async with shared_at(proxy, monkeypatch) as (shared, advance):
        proxy.hold("replies")
        first = shared.send(ECHOES[0], 1, None)
        await advance(600)
        second = shared.send(ECHOES[1], 1, None)
        await advance(450)
        assert isinstance(first.future.exception(), TimeoutError)
        assert shared.retired
        assert not second.future.done()
        proxy.restore()
        async with asyncio.timeout(TEST_TIMEOUT):
            assert await second.future == [b"1"]
        await until(lambda: not proxy.connections)


async def test_replies_to_others_prolong_nothing(redis_server, unique):
    """A request times out in its own time, though the server goes on answering those that were sent before it."""
    pool = node_for(redis_server.url, NodeOptions(0.5)).known_pool(None)
    shared = await pool.shared.open()
    start = asyncio.get_running_loop().time()
    slow = [shared.send(encode_command(b"BLPOP", unique.encode(), b"0.2"), 1, None) for _ in range(30)]
    outcomes = await asyncio.gather(*(each.future for each in slow), return_exceptions=True)
    assert asyncio.get_running_loop().time() - start < 3  # one after another they take 6 s
    assert outcomes[0] == [None]
    assert isinstance(outcomes[-1], TimeoutError)
    pool.clear()
    await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [RedisServer, TlsRedis])
async def test_server_that_reads_nothing(running, kind):
    """A hung server keeps no connection open, and close() does not wait for it."""
    server = running(kind)
    pool = node_for(server.url, NodeOptions(SHORT)).known_pool(None)
    async with asyncio.timeout(TEST_TIMEOUT):
        while (shared := pool.shared.current()) is None:
            with contextlib.suppress(RedisError, OSError):  # a busy machine may not connect in time
                await pool.shared.open()
    server.pause()
    try:
        with pytest.raises(TimeoutError):
            await shared.send(encode_command(b"ECHO", bytes(20_000_000)), 1, None).future
        pool.clear()
        await asyncio.sleep(0)
    finally:
        server.resume()
