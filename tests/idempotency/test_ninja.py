"""Operations of django-ninja: where the decorator works, and what it says elsewhere."""

import pytest
from django.test import Client
from django.urls import path

from django_redlock.decorators import idempotent
from tests.idempotency.conftest import replayed

pytest.importorskip("ninja")

from ninja import NinjaAPI, Schema
from ninja.decorators import decorate_view

pytestmark = pytest.mark.usefixtures("stores")
api, calls = NinjaAPI(urls_namespace="idempotent"), []
once = idempotent(using="memory", scope=lambda _request: "client")


class Payment(Schema):
    amount: int


@api.post("/right")
@decorate_view(once)
def right(request, payment: Payment):
    calls.append(payment.amount)
    return {"calls": len(calls), "key": request.idempotency_key}


@api.post("/wrong")
@once
def wrong(request, amount: int):
    calls.append(amount)
    return {}


urlpatterns = [path("api/", api.urls)]


@pytest.fixture
def post(settings):
    settings.ROOT_URLCONF = __name__
    calls.clear()
    return lambda where: Client(headers={"Idempotency-Key": "k"}).post(where, {"amount": 3}, "application/json")


def test_around_the_view(post):
    """In ``decorate_view`` the decorator stores the response of the operation."""
    first, again = post("/api/right"), post("/api/right")
    assert (first.json(), again.json()) == ({"calls": 1, "key": "k"},) * 2
    assert replayed(again)


def test_below_the_operation(post):
    """Around the operation's function, an error that names the right place comes before the work."""
    with pytest.raises(TypeError, match="above @decorate_view"):
        post("/api/wrong?amount=3")
    assert calls == []
