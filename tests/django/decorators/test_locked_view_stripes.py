"""`@locked_view(stripes=…)`: views that run at the same time."""

import json

import pytest
from django.http import JsonResponse
from django.test import RequestFactory

from django_redlock import lock, locks
from django_redlock.decorators import locked_view
from django_redlock.errors import LockNotAcquired
from tests.django.decorators.test_locked_view import called

pytestmark = pytest.mark.usefixtures("stores")

get = RequestFactory().get


@locked_view("stock:{sku}", stripes=2)
def striped(request, sku):
    return JsonResponse({"stripe": request.lock.stripe, "owned": request.lock.owned()})


@locked_view("stock:{sku}", stripes=2)
async def astriped(request, sku):
    return JsonResponse({"stripe": request.lock.stripe, "owned": await request.lock.aowned()})


@pytest.mark.parametrize("view", [striped, astriped])
def test_stripes(view):
    """A view gets a free stripe, and is refused when all are held."""
    with locks["default"].striped("stock:apple", 2) as lock:
        assert json.loads(called(view, value="apple").content) == {"stripe": 1 - lock.stripe, "owned": True}
        with locks["default"].striped("stock:apple", 2):
            assert called(view, value="apple").status_code == 409


@pytest.mark.parametrize("ask", ["sync", "async"])
def test_switch_to_another_stripe(ask):
    """A view can switch to another stripe, and is refused if the others are held."""
    had = []

    def view(request, **_kwargs):
        had.append(request.lock.stripe)
        with locks["default"].striped("stock", 2):
            request.lock.switch()

    async def aview(request, **_kwargs):
        had.append(request.lock.stripe)
        async with locks["default"].striped("stock", 2):
            await request.lock.aswitch()

    response = called(locked_view("stock", stripes=2)(view if ask == "sync" else aview))
    assert (response.status_code, len(had)) == (409, 1)
    assert not locks["default"].striped("stock", 2, without=[1 - had[0]]).locked()


def test_stripes_and_other_locks():
    """A refusal because of another lock, or of the same lock a second time, is the view's error."""
    view = locked_view("stock", stripes=2)(lambda _request: lock("other", blocking=False).__enter__())
    with lock("other"), pytest.raises(LockNotAcquired, match="other"):
        view(get("/"))
    plain = locked_view("stock")(lambda _request: lock("stock", blocking=False).__enter__())
    with pytest.raises(LockNotAcquired, match="stock"):
        plain(get("/"))


@pytest.mark.parametrize(("stripes", "error"), [(0, ValueError), (300, ValueError), ("4", TypeError)])
def test_invalid_stripes(stripes, error):
    with pytest.raises(error, match="stripes"):
        locked_view("stock", stripes=stripes)
