"""An exception that the application handles while it uses a lock is not taken for the cause of a failed request."""

import asyncio
import contextlib
import traceback

import pytest
import redis

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockError


@pytest.fixture(params=[RedisBackend, RedlockBackend])
def backend(request, start, proxy):
    """A backend behind `proxy`, with idle connections."""
    url = proxy.url.removesuffix("/0")
    if request.param is RedisBackend:
        opened = RedisBackend(url, node_timeout=10)
    else:
        opened = RedlockBackend([f"{url}/{db}" for db in range(3)], ttl=60, node_timeout=10, quarantine=False)
    start(contextlib.closing(opened))
    with opened.lock("before"):
        pass
    return opened


@pytest.fixture(params=["blocking", "asyncio"])
def acquire(request):
    """Acquire a lock without waiting, blocking or in an event loop."""
    if request.param == "blocking":
        return lambda lock: lock.acquire(blocking=False)
    return lambda lock: asyncio.run(lock.aacquire(blocking=False))


class ServiceTimeout(Exception):
    """An error that the application makes of a timeout."""


def time_out():
    raise TimeoutError("of a web service")


def call_service():
    try:
        time_out()
    except TimeoutError as error:
        raise ServiceTimeout from error


def innermost(error):
    """Return the name of the function that has raised ``error``."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].name if frames else None


@pytest.mark.parametrize("call", [time_out, call_service])
def test_closed_connections(backend, proxy, unique, call):
    """While the application handles a timeout, a request on a closed connection is sent again as usual."""
    proxy.cut()
    try:
        call()
    except (TimeoutError, ServiceTimeout):
        lock = backend.lock(unique)
        assert lock.acquire(blocking=False)
        lock.release()


def time_out_holding(lock, proxy):
    with lock:
        proxy.cut()
        time_out()


async def atime_out_holding(lock, proxy):
    async with lock:
        await asyncio.to_thread(proxy.cut)
        time_out()


@pytest.mark.parametrize("hold", [time_out_holding, lambda *args: asyncio.run(atime_out_holding(*args))])
def test_release_after_a_timeout(backend, proxy, unique, hold):
    """After a body that has timed out, the release on a closed connection is sent again, and the traceback is kept."""
    with pytest.raises(TimeoutError) as raised:
        hold(backend.lock(unique, ttl=60), proxy)
    assert innermost(raised.value) == "time_out"
    assert not backend.lock(unique).locked()


def fall_back_to_a_lock(lock, acquire):
    try:
        call_service()
    except ServiceTimeout:
        with pytest.raises(LockError) as refused:
            acquire(lock)
        assert "no reply in time" not in str(refused.value)
        raise


def error_reply(proxy, unique):
    for db in range(3):
        with redis.Redis.from_url(f"{proxy.url.removesuffix('/0')}/{db}") as client:
            client.rpush(f"redlock:{{{unique}}}", "not a lock")


def store_down(proxy, _):
    proxy.refuse()
    proxy.cut()


@pytest.mark.parametrize("plight", [error_reply, store_down])
def test_failed_request(backend, proxy, acquire, unique, plight):
    """After a failed request, an exception that the application handles keeps its traceback."""
    plight(proxy, unique)
    with pytest.raises(ServiceTimeout) as raised:
        fall_back_to_a_lock(backend.lock(unique), acquire)
    assert innermost(raised.value) == "call_service"
    assert innermost(raised.value.__cause__) == "time_out"
