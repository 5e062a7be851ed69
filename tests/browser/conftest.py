"""A real Chromium on the admin, under a policy that forbids all inline and all foreign content."""

import threading

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from pytest_django.live_server_helper import LiveServer

from django_redlock.models import HeldLock
from tests.browser.chromium import Browser, Chromium
from tests.django.admin.test_list import LIST
from tests.support.service import poll

# The strictest content security policy under which a page can still be shown.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def strict(get_response):
    """Middleware that sets the policy on every response."""

    def middleware(request):
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return middleware


@pytest.fixture
def live_server(stores):
    """A server with the policy. pytest-django's would have been started earlier, with other middleware."""
    server = LiveServer("localhost")
    yield server
    server.stop()


@pytest.fixture
def chromium(running, live_server):
    """A browser. It ends before the server, whose threads need the database until its connections are closed."""
    with Browser(running(Chromium), live_server.url) as browser:
        yield browser
    serving = "(process_request_thread)"
    poll(lambda: not any(serving in each.name for each in threading.enumerate()), timeout=60, what="the server to rest")


@pytest.fixture
def stores(stores, settings):
    """The stores, and the admin alone under the policy."""
    settings.ROOT_URLCONF = "tests.django.urls"
    settings.MIDDLEWARE = ["tests.browser.conftest.strict", *settings.MIDDLEWARE]
    return stores


@pytest.fixture
def page(chromium, stores, client, transactional_db, monkeypatch):
    """A window on the list, logged in as an operator. At the end nothing has been blocked and no script has failed."""
    monkeypatch.setattr(admin.site.get_model_admin(HeldLock), "refresh", 0.3)
    user = User.objects.create_user("operator", is_staff=True)  # no password: hashing one takes long
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_heldlock", "delete_heldlock"]))
    client.force_login(user)
    chromium.log_in(client.cookies["sessionid"].value)
    chromium.open(LIST)
    policy = "return fetch(location.href).then((page) => page.headers.get('content-security-policy'))"
    assert chromium.script(policy) == POLICY
    yield chromium
    assert chromium.complaints() == []
