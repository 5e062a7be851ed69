"""Async functions and classes."""

import asyncio

import pytest
from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views import View

from django_redlock.decorators import idempotent, locked_view
from tests.idempotency.conftest import aask, code, replayed


@pytest.fixture(params=["default", "memory"])
def using(request, stores):
    """Each store for async views in turn."""
    return request.param


def function(using, respond):
    @idempotent(using=using)
    async def view(request):
        return await respond()

    return view


def on_class(using, respond):
    @idempotent(using=using)
    class OnClass(View):
        async def post(self, request):
            return await respond()

    return OnClass.as_view()


def on_dispatch(using, respond):
    @method_decorator(idempotent(using=using), name="dispatch")
    class OnDispatch(View):
        async def post(self, request):
            return await respond()

    return OnDispatch.as_view()


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

    view = function(using, respond)
    first = asyncio.create_task(aask(view))
    await asyncio.wait_for(entered.wait(), 60)
    return view, first, go


@pytest.mark.parametrize("make", [function, on_class, on_dispatch])
async def test_repeat(using, make):
    """A repeat gets the stored answer, another key a new one."""
    view = make(using, counting())
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


async def test_a_refused_lock_is_not_stored(stores):
    """The response of ``on_conflict`` is not stored, because the view did not run."""

    async def busy(_request, _error):
        return HttpResponse(b"busy")

    @idempotent()
    @locked_view("stock", on_conflict=busy)
    async def view(_request):
        return HttpResponse(b"done")

    async with stores["default"].lock("stock"):
        assert (await aask(view)).content == b"busy"
    assert (await aask(view)).content == b"done"
