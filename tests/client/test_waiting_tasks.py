"""Tasks that wait for locks have a connection each, up to a limit, and poll beyond it."""

import asyncio
import contextlib
import gc
import warnings
import weakref

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.client import pool
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.exclusion import WAKE
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.service import poll, until

pytestmark = pytest.mark.usefixtures("woken_only", "few_waiters")
WAITERS = 4
FEW = WAITERS + 1  # one for all requests that do not block
SHORT = 0.05


@pytest.fixture
def few_waiters(monkeypatch):
    monkeypatch.setattr(pool, "MAX_WAITERS", WAITERS)


@pytest.fixture
def server(own_redis):
    return own_redis()


@pytest.fixture
def admin(server):
    with server.client() as client:
        yield client


def connections(admin):
    """Return the connections of the backends. No other connections are open."""
    return len(admin.client_list()) - 1


@contextlib.asynccontextmanager
async def opened(*args, kind=RedisBackend, **options):
    backend = kind(*args, node_timeout=20, **options)
    yield backend
    await backend.aclose()
    backend.close()


@contextlib.asynccontextmanager
async def all_blocked(backend, name, others=1):
    """Held locks with a waiting task for each, of which ``others`` poll."""
    names = [f"{name}:{number}" for number in range(WAITERS + others)]
    holders = [backend.lock(each) for each in names]
    for holder in holders:
        await holder.aacquire()
    handles, tasks = [backend.lock(each) for each in names], []
    for handle in handles:
        tasks.append(asyncio.create_task(handle.aacquire(timeout=3 * TEST_TIMEOUT)))
        await until(lambda handle=handle: backend.lock(handle.name).locked() and backend.describe(handle.name).waiters)
    try:
        yield holders, handles, tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@pytest.mark.parametrize("cohort", [0, 64])
async def test_a_thousand_tasks(server, admin, unique, cohort):
    """1,000 tasks wait for 100 names on few connections, and all get their lock."""
    done, names = [], range(100)

    async def work(backend, number):
        async with backend.lock(f"{unique}:{number % 100}", blocking_timeout=6 * TEST_TIMEOUT):
            done.append(number)

    async with opened(server.url, cohort=cohort) as backend, opened(server.url) as other:
        holders = [other.lock(f"{unique}:{number}") for number in names]
        for holder in holders:
            await holder.aacquire()
        await other.aclose()
        tasks = [asyncio.create_task(work(backend, number)) for number in range(1000)]
        await until(lambda: all(backend.describe(f"{unique}:{number}").waiters for number in names))
        assert connections(admin) <= FEW + 2  # the test's own, and the thread of the event history
        assert not done
        for holder in holders:
            await holder.arelease()
        most = 0
        while len(done) < 1000:
            most = max(most, await asyncio.to_thread(connections, admin))
            await asyncio.sleep(0.01)
        assert most <= 2 * FEW
        await asyncio.gather(*tasks)
    assert sorted(done) == list(range(1000))


async def test_waiter_is_woken(server, unique):
    """A waiter that polls is woken by a release of its own lock, and only that waiter."""
    async with opened(server.url) as backend, all_blocked(backend, unique, 3) as (holders, handles, tasks):
        await holders[-2].arelease()
        async with asyncio.timeout(WAKE):
            assert await tasks[-2]
        assert sum(bool(handle.token) for handle in handles) == 1
        await handles[-2].arelease()


@pytest.mark.parametrize("steps", [-1, *range(8)])
async def test_wake_up_of_a_cancelled_waiter(server, unique, steps):
    """A wake-up for a cancelled waiter goes to the next one, here or in another process."""
    async with (
        opened(server.url) as backend,
        opened(server.url) as other,
        all_blocked(backend, unique) as (holders, handles, tasks),
    ):
        following = asyncio.create_task(other.lock(handles[-1].name).aacquire(timeout=TEST_TIMEOUT))
        await until(lambda: backend.describe(handles[-1].name).waiters == 2)
        if steps >= 0:
            await holders[-1].arelease()
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks[-1].cancel()
        await asyncio.wait([tasks[-1]])
        if steps < 0:
            await holders[-1].arelease()
        if not tasks[-1].cancelled():
            await handles[-1].arelease()
        async with asyncio.timeout(WAKE):
            assert await following


async def test_store_down(server, unique):
    """When the server is down all waiters get the error at once."""
    async with opened(server.url) as backend, all_blocked(backend, unique, 20) as (_, _handles, tasks):
        server.kill()
        done, pending = await asyncio.wait(tasks, timeout=WAKE)
        assert not pending
        assert all(isinstance(task.exception(), LockUnavailable) for task in done)


async def test_server_hangs(server, unique):
    """When the server hangs, queued requests fail after at most two node timeouts."""
    backend = RedisBackend(server.url, node_timeout=0.5)
    async with asyncio.timeout(TEST_TIMEOUT):
        while not backend.nodes[0].known_pool(None).shared.current():  # connected
            with contextlib.suppress(LockUnavailable):
                await backend.lock(unique).alocked()
    server.pause()
    attempts = (backend.lock(f"{unique}:{number}").aacquire(False) for number in range(800))
    async with asyncio.timeout(TEST_TIMEOUT):  # one after another it were twenty times as long
        errors = await asyncio.gather(*attempts, return_exceptions=True)
    assert all(isinstance(error, LockUnavailable) for error in errors)
    server.resume()
    await backend.aclose()
    backend.close()


@pytest.mark.parametrize("woken", [True, False], ids=["woken", "cancelled"])
def test_an_ended_loop(server, unique, woken):
    """An event loop on which tasks waited for locks leaves nothing in memory."""

    async def scenario():
        async with all_blocked(backend, unique) as (holders, handles, tasks):
            for holder in holders if woken else ():
                await holder.arelease()
            assert not woken or await asyncio.gather(*tasks) == [True] * len(tasks)
        for handle in handles if woken else holders:
            await handle.arelease()
        return weakref.ref(asyncio.get_running_loop())

    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # what tests before have left
    with contextlib.closing(RedisBackend(server.url, node_timeout=5)) as backend:
        loop = asyncio.run(scenario())
        gc.collect()
        assert loop() is None


def test_loops_that_are_closed_at_once(server, admin, unique):
    """Connections of event loops that ended without ``shutdown_asyncgens()`` are closed when another loop connects."""

    async def pair(backend):
        async with backend.lock(unique):
            pass

    # The warnings are asyncio's own, for each connection of such a loop.
    ignored = warnings.catch_warnings(action="ignore", category=ResourceWarning)
    with contextlib.closing(RedisBackend(server.url, node_timeout=20, history=False)) as backend, ignored:
        for _ in range(6):
            loop = asyncio.new_event_loop()
            loop.run_until_complete(pair(backend))
            loop.close()
            del loop
            gc.collect()
        poll(lambda: connections(admin) < 4, timeout=60, what="the end of the connections")
        asyncio.run(pair(backend))
        gc.collect()


async def test_a_waiter_that_can_not_connect(server, admin, unique):
    """While no connection can be opened, a waiter polls with pauses."""
    async with opened(server.url, history=False) as backend:
        holders = [backend.lock(f"{unique}:{number}", ttl=300) for number in range(WAITERS)]
        await asyncio.gather(*(holder.aacquire() for holder in holders))
        waiters = [
            asyncio.create_task(backend.lock(holder.name).aacquire(timeout=3 * TEST_TIMEOUT)) for holder in holders[1:]
        ]
        await until(lambda: admin.info("clients")["blocked_clients"] == len(waiters))
        admin.config_set("maxclients", len(admin.client_list()))
        before = admin.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert not await backend.lock(holders[0].name).aacquire(timeout=2)
        assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] - before < 100
        admin.config_set("maxclients", 10_000)
        await asyncio.gather(*(holder.arelease() for holder in holders))
        assert all(await asyncio.gather(*waiters))
