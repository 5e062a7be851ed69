"""Whole requests through Django's handler: users, sessions, cookies and CSRF."""

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_redlock.decorators import idempotent
from tests.idempotency.conftest import code, replayed


@idempotent(using="memory")
def pay(request):
    request.session["paid"] = request.session.get("paid", 0) + 1
    return HttpResponse(str(request.session["paid"]))


def visit(request):
    request.session["visited"] = True
    return HttpResponse()


urlpatterns = [path("pay", pay), path("visit", visit)]


@pytest.fixture
def browser(settings, stores, db):
    """`browser()`: a client with its own cookies."""
    settings.ROOT_URLCONF = __name__
    return Client


def post(client, key='"k"', **more):
    return client.post("/pay", {"sku": 1}, HTTP_IDEMPOTENCY_KEY=key, **more)


def test_users(browser):
    """The key of a user is the same in all of the user's browsers, and differs from another user's."""
    alice, bob = (User.objects.create_user(name) for name in ("alice", "bob"))
    phone, laptop, other = browser(), browser(), browser()
    for client, user in ((phone, alice), (laptop, alice), (other, bob)):
        client.force_login(user)
    assert [replayed(post(each)) for each in (phone, laptop, other)] == [False, True, False]


def test_sessions(browser):
    """Without a user a key belongs to the session, and a cookie of no session is refused."""
    first, second, made_up = browser(), browser(), browser()
    for client in (first, second):
        client.get("/visit")
    made_up.cookies["sessionid"] = "a" * 32
    assert [replayed(post(first)), replayed(post(first)), replayed(post(second))] == [False, True, False]
    assert code(post(made_up)) == (400, "idempotency-user-missing")
    assert code(post(browser())) == (400, "idempotency-user-missing")


def test_csrf(browser):
    client = browser(enforce_csrf_checks=True)
    client.get("/visit")
    client.cookies["csrftoken"] = token = "a" * 32
    assert post(client).status_code == 403
    assert [replayed(post(client, HTTP_X_CSRFTOKEN=token)) for _ in range(2)] == [False, True]
    assert post(client).status_code == 403
