"""A real Chromium on the admin, under a policy that forbids everything inline and everything foreign."""

from __future__ import annotations

import os
import shutil

import pytest
from django.contrib.auth.models import Permission, User

from django_redlock import locks
from tests.browser.chromium import Browser

LIST = "/admin/django_redlock/heldlock/"


@pytest.fixture(scope="session")
def chromium(pytestconfig):
    """The browser of the session; its windows are closed after each test."""
    if missing := [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]:
        required = pytestconfig.getoption("--require-servers") or os.environ.get("REDLOCK_REQUIRE_SERVERS") == "1"
        (pytest.fail if required else pytest.skip)(f"not installed: {missing} (apt install chromium chromium-driver)")
    with Browser() as browser:
        yield browser


@pytest.fixture
def stores(settings, redis_url, unique):
    """`default` on a real Redis."""
    settings.ROOT_URLCONF = "tests.django.urls"
    settings.MIDDLEWARE = ["tests.browser.csp.strict", *settings.MIDDLEWARE]
    settings.REDLOCK = {
        "default": {"BACKEND": "django_redlock.backends.redis.RedisBackend", "LOCATION": redis_url},
        "memory": {"BACKEND": "django_redlock.backends.locmem.LocMemBackend", "LOCATION": unique},
    }
    yield locks
    locks.reset()


@pytest.fixture
def page(chromium, stores, live_server, client, transactional_db, monkeypatch):
    """A window on the list, logged in as an operator. At the end nothing has been blocked and no script has failed."""
    from django.contrib import admin

    from django_redlock.models import HeldLock

    monkeypatch.setattr(admin.site.get_model_admin(HeldLock), "refresh", 0.3)
    user = User.objects.create_user("operator", password="secret", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_heldlock", "delete_heldlock"]))
    client.force_login(user)
    chromium.begin(live_server.url, client.cookies["sessionid"].value)
    chromium.open(LIST)
    yield chromium
    complaints = chromium.complaints()
    chromium.end()
    assert complaints == []
