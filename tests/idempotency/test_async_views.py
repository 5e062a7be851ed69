"""Async functions and classes."""

import asyncio

import pytest
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from django_redlock import locks
from django_redlock.decorators import idempotent, locked_view
from tests.idempotency.conftest import aask, code, replayed
from tests.support.service import poll


@pytest.fixture(params=["default", "memory"])
def using(request, stores):
    """Each store for async views in turn."""
    return request.param


def view_of(using, respond, place="function"):
    """A view that responds with the result of a coroutine function. `place`: where the decorator stands."""

    async def view(_request):
        return await respond()

    class Page(View):
        async def post(self, request):
            return await view(request)

    decorate = idempotent(using=using)
    if place == "function":
        return decorate(view)
    return (decorate(Page) if place == "class" else method_decorator(decorate, name=place)(Page)).as_view()


def counting():
    """Return a view that responds with the number of its calls."""
    calls = []

    async def respond():
        calls.append(1)
        return HttpResponse(str(len(calls)))

    return respond


async def begun(using):
    """Return a view, its first request, which is running, and the event that lets it end."""
    entered, go = asyncio.Event(), asyncio.Event()

    async def respond():
        entered.set()
        await go.wait()
        return HttpResponse(b"done")

    view = view_of(using, respond)
    first = asyncio.create_task(aask(view))
    await asyncio.wait_for(entered.wait(), 60)
    return view, first, go


@pytest.mark.parametrize("place", ["function", "class", "dispatch"])
async def test_repeat(using, place):
    view = view_of(using, counting(), place)
    first, again, other = await aask(view), await aask(view), await aask(view, key='"k2"')
    assert (first.content, again.content, other.content) == (b"1", b"1", b"2")
    assert list(map(replayed, (first, again, other))) == [False, True, False]


async def test_while_the_first_runs(using):
    """A repeat is refused while the first runs, also on the same event loop."""
    view, first, go = await begun(using)
    refused = await aask(view)
    go.set()
    assert code(refused) == (409, "idempotency-key-in-use")
    assert (await first).content == b"done"
    assert replayed(await aask(view))


async def test_a_repeat_waits(using):
    """With `wait` a repeat waits for the first request, also on the same event loop."""
    view, first, go = await begun(using)
    waiting = asyncio.create_task(aask(idempotent(using=using, wait=60)(view.__wrapped__)))
    await asyncio.sleep(0)
    go.set()
    assert replayed(await waiting)
    await first


async def test_the_client_disconnects(using):
    """When the client disconnects, a view that has begun runs to its end and its answer is stored."""
    view, first, go = await begun(using)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = await aask(view)
    assert (again.content, replayed(again)) == (b"done", True)


async def test_the_client_disconnects_before_the_view_begins(using):
    """A request that waits for the lock of `locked_view` is cancelled at once, and a repeat runs the view."""
    locked = locked_view("stock", using=using, blocking_timeout=60)(view_of(using, counting()).__wrapped__)
    view = idempotent(using=using)(locked)
    async with locks[using].lock("stock"):
        first = asyncio.create_task(aask(view))
        await asyncio.to_thread(poll, lambda: locks[using].describe("stock").waiters, timeout=60, what="a waiter")
        first.cancel()
        done, _ = await asyncio.wait([first], timeout=30)
        assert done
        assert first.cancelled()
    assert (await aask(view)).content == b"1"
