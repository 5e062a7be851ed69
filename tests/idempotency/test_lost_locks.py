"""Views with `@locked_view` and `@idempotent` that lose their lock."""

import pytest
from django.http import HttpResponse

from django_redlock import locks
from django_redlock.decorators import idempotent, locked_view
from django_redlock.errors import LockLost
from tests.idempotency.conftest import aask, as_django, ask, code
from tests.idempotency.models import Charge

# The responses to a repeat until the lease of the first request has ended, and after that.
IN_DOUBT = {(409, "idempotency-key-in-use"), (409, "idempotency-outcome-unknown")}


@pytest.fixture(params=["default", "memory"])
def using(request, stores):
    """The backend of both decorators: one Redis, and memory."""
    return request.param


def lose(lock, using="default"):
    """Lose a lock, and let its handle notice the loss."""
    assert locks[using].force_release(lock.name)
    with pytest.raises(LockLost):
        lock.extend()


async def alose(lock, using="default"):
    """Lose the lock of an async view, and let its handle notice the loss."""
    assert await locks[using].aforce_release(lock.name)
    with pytest.raises(LockLost):
        await lock.aextend()


# ── idempotent above locked_view, which raises LockLost when the view has returned ───────────


def test_unnoticed_in_the_view(atomic_requests):
    """An error of the release comes after the commit: a repeat is refused and there is one charge."""

    @idempotent()
    @locked_view("stock")
    def view(_request):
        assert locks["default"].force_release("stock")  # the view has not heard of it when it returns
        Charge.objects.using(atomic_requests).create(order="1")
        return HttpResponse()

    view = as_django(view)
    with pytest.raises(LockLost):
        ask(view)
    assert code(ask(view)) == (409, "idempotency-key-in-use")
    assert Charge.objects.using(atomic_requests).count() == 1


async def test_unnoticed_in_an_async_view(stores):
    """An error of the release comes after the view: a repeat is refused."""

    @idempotent()
    @locked_view("stock")
    async def view(_request):
        assert await stores["default"].aforce_release("stock")  # the view has not heard of it when it returns
        return HttpResponse()

    with pytest.raises(LockLost):
        await aask(view)
    assert code(await aask(view)) == (409, "idempotency-key-in-use")


def test_noticed_in_the_view(using):
    """A lock that is lost in the view leaves the outcome unknown: no repeat runs the view."""
    calls = []

    @idempotent(using=using)
    @locked_view("stock", using=using)
    def view(request):
        calls.append(1)
        lose(request.lock, using)
        return HttpResponse()

    with pytest.raises(LockLost):
        ask(view)
    assert code(ask(view)) in IN_DOUBT
    assert calls == [1]


async def test_noticed_in_an_async_view(using):
    """A lock that is lost in an async view leaves the outcome unknown: no repeat runs the view."""
    calls = []

    @idempotent(using=using)
    @locked_view("stock", using=using)
    async def view(request):
        calls.append(1)
        await alose(request.lock, using)
        return HttpResponse()

    with pytest.raises(LockLost):
        await aask(view)
    assert code(await aask(view)) in IN_DOUBT
    assert calls == [1]
