"""Views with `@locked_view` and `@idempotent` that lose their lock."""

import asyncio
import contextlib

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from django_redlock import locks
from django_redlock.decorators import idempotent, locked_view
from django_redlock.errors import LockLost
from tests.idempotency.conftest import ALICE, aask, as_django, ask, code, replayed
from tests.idempotency.models import Charge

IN_DOUBT = (409, "idempotency-outcome-unknown")


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


def test_another_request_has_begun(using):
    """A request that has lost its lock leaves the record of a later one alone, which has begun with in_doubt="run"."""
    answers, inner = [], []

    @idempotent(using=using, in_doubt="run")
    def view(request):
        if not inner:
            inner.append(1)
            (held,) = locks[using].held()
            assert locks[using].force_release(held.name)
            answers.append(ask(view).content)
            return HttpResponse("early")
        return HttpResponse("late")

    view = as_django(view)
    with contextlib.suppress(LockLost):
        ask(view)
    assert answers == [b"late"]
    assert ask(view).content == b"late"


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
    assert code(ask(view)) == IN_DOUBT
    assert Charge.objects.using(atomic_requests).count() == 1


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_noticed_in_the_view(using, colour):
    calls = []

    def view(request):
        calls.append(1)
        lose(request.lock, using)
        return HttpResponse()

    async def aview(request):
        calls.append(1)
        await alose(request.lock, using)
        return HttpResponse()

    decorated = idempotent(using=using)(locked_view("stock", using=using)(view if colour == "sync" else aview))

    def send():
        return ask(decorated) if colour == "sync" else asyncio.run(aask(decorated))

    with pytest.raises(LockLost):
        send()
    assert code(send()) == IN_DOUBT
    assert calls == [1]


# ── locked_view above idempotent, which commits the work ─────────────────────────────────────


def selling(alias, **options):
    """Return a view that makes a charge in the database ``alias``. Its first call loses the lock of `locked_view`."""
    calls = []

    @idempotent(**options)
    def view(request):
        Charge.objects.using(alias).create(order="1")
        calls.append(1)
        if len(calls) == 1:
            lose(request.outer if hasattr(request, "outer") else request.lock)
        return HttpResponse()

    return view


def test_nothing_is_committed_without_the_lock(database):
    """The work and its answer are rolled back together, and a repeat does the work."""
    view = locked_view("stock")(selling(database, database=database))
    with pytest.raises(LockLost):
        ask(view)
    assert Charge.objects.using(database).count() == 0
    assert [replayed(ask(view)) for _ in range(2)] == [False, True]
    assert Charge.objects.using(database).count() == 1


@pytest.mark.parametrize("kind", ["redis", "database"])
def test_nothing_is_committed_with_atomic_requests(atomic_requests, kind):
    """The transaction of ATOMIC_REQUESTS is rolled back. With Redis the outcome of other work is unknown."""
    options = {"database": atomic_requests} if kind == "database" else {}
    view = as_django(locked_view("stock")(selling(atomic_requests, **options)))
    with pytest.raises(LockLost):
        ask(view)
    assert Charge.objects.using(atomic_requests).count() == 0
    again = ask(view)
    assert again.status_code == 200 if kind == "database" else code(again) == IN_DOUBT
    assert Charge.objects.using(atomic_requests).count() == (kind == "database")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_two_locks(database):
    """The outer one of two locks counts as much as the inner one."""
    inner = locked_view("shelf")(selling(database, database=database))

    @locked_view("stock")
    def view(request):
        request.outer = request.lock
        return inner(request)

    with pytest.raises(LockLost):
        ask(view)
    assert Charge.objects.using(database).count() == 0


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_same_request_again(database):
    """A middleware may send a request to the view again: only the new lock counts."""
    view = locked_view("stock")(selling(database, database=database))
    request = RequestFactory().post("/pay", headers={"Idempotency-Key": "k"})
    request.user = ALICE
    with pytest.raises(LockLost):
        view(request)
    assert view(request).status_code == 200
    assert Charge.objects.using(database).count() == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_loss_that_only_warns(database):
    view = locked_view("stock", on_lost="warn")(selling(database, database=database))
    assert [replayed(ask(view)) for _ in range(2)] == [False, True]
    assert Charge.objects.using(database).count() == 1
