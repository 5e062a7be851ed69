"""An async view whose client disconnects keeps its lock until the work of its threads has ended."""

import asyncio
import contextlib
import socket
import sys
import threading
from http.client import HTTPConnection

import pytest
from django.http import HttpResponse
from django.test import AsyncRequestFactory
from django.utils import translation

from django_redlock import lock
from django_redlock.backends.redis import RedisBackend
from django_redlock.decorators import locked_view
from testproject.processes import Child, wait_until
from testproject.redis_server import free_port
from tests.support.locks import wait_until_renewed
from tests.support.service import poll, until

PATIENCE = 60


def asked(port, path):
    """Send a request, whose response may never be read."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path)
    return connection


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(params=["uvicorn", "daphne"])
def port(request, redis_url, tmp_path):
    """A real ASGI server with `tests.django.decorators.asgi_sale`."""
    pytest.importorskip(request.param)
    port = free_port(request)
    where = {"uvicorn": ["--host", "127.0.0.1", "--port"], "daphne": ["-b", "127.0.0.1", "-p"]}[request.param]
    command = [sys.executable, "-m", request.param, *where, str(port), "tests.django.decorators.asgi_sale:application"]
    env = {"TESTPROJECT_REDIS": redis_url, "TESTPROJECT_DATABASE": str(tmp_path / "db.sqlite3"), "ASGI_SALE": "1"}
    child = Child(command, output=tmp_path / "log", env=env)
    wait_until(lambda: answers(port), child=child, timeout=120, what=request.param)
    yield port
    child.kill()


def test_next_request_enters_after_the_commit(port, redis_server):
    with redis_server.client() as redis, contextlib.closing(RedisBackend(redis_server.url, node_timeout=5)) as backend:

        def events():
            return [each.decode() for each in redis.lrange("events", 0, -1)]

        def second_is_there():
            held = backend.describe("sale")
            return "entered 2" in events() or (held is not None and held.waiters == 1)

        first = asked(port, "/buy/1/")
        poll(lambda: "entered 1" in events(), timeout=PATIENCE, what="the first request")
        first.close()
        poll(lambda: "disconnected" in events(), timeout=PATIENCE, what="the disconnect")
        second = asked(port, "/buy/2/")
        poll(second_is_there, timeout=PATIENCE, what="the second request")
        for number in (1, 2):
            redis.rpush(f"commit {number}", "")
        assert second.getresponse().status == 201
        second.close()
        assert events() == ["entered 1", "disconnected", "committed 1", "entered 2", "committed 2"]


# ── details, without a server ────────────────────────────────────────────────────────────────

aget = AsyncRequestFactory().get


@pytest.fixture
async def alocks(stores):
    """The stores, whose connections of this event loop are closed at the end."""
    yield stores
    await stores["default"].aclose()


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelled_while_a_thread_works(alocks, times):
    """A cancelled view ends after its thread's work, with a free lock."""
    begun, go_on, ended = threading.Event(), threading.Event(), []

    @locked_view("stock", ttl=6)
    async def view(request):
        await asyncio.to_thread(lambda: (begun.set(), go_on.wait(PATIENCE)))
        ended.append(request.lock.lost)
        return HttpResponse()

    task = asyncio.create_task(view(aget("/")))
    await asyncio.to_thread(begun.wait, PATIENCE)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.01)
    await asyncio.to_thread(wait_until_renewed, alocks["default"], "stock")
    go_on.set()
    await asyncio.wait([task])
    assert (task.cancelled(), ended) == (True, [False])
    assert not await lock("stock").alocked()


async def test_cancelled_while_it_waits_for_the_lock(alocks):
    """A view that is cancelled while it waits for its lock ends at once and does not run."""

    @locked_view("stock", blocking_timeout=PATIENCE)
    async def view(request):
        raise AssertionError("never called")

    async with lock("stock"):
        task = asyncio.create_task(view(aget("/")))
        await until(lambda: alocks["default"].describe("stock").waiters)
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE / 2)
        assert task.cancelled()


async def test_error_of_a_cancelled_view(alocks):
    begun = asyncio.Event()

    @locked_view("stock")
    async def view(request):
        begun.set()
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    task = asyncio.create_task(view(aget("/")))
    await begun.wait()
    task.cancel()
    with pytest.raises(ZeroDivisionError):
        await task


async def test_what_a_view_sets_middleware_sees(alocks):
    """Context variables that a view sets, such as its language, reach the middleware."""

    @locked_view("stock")
    async def view(request):
        translation.activate("fr")
        return HttpResponse()

    with translation.override("en"):
        await view(aget("/"))
        assert translation.get_language() == "fr"
