"""axe-core on every page of the admin, in both themes."""

import threading

import pytest
from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.models import User

from django_redlock.models import HeldLock
from tests.browser.chromium import AXE, DESKTOP, PHONE
from tests.browser.conftest import LIST
from tests.support.service import poll

pytestmark = pytest.mark.skipif(not AXE.exists(), reason="axe-core-python is not installed")


@pytest.fixture
def page(page, monkeypatch):
    """A window whose further pages stay as they are: axe-core does not expect elements that go."""
    monkeypatch.setattr(admin.site.get_model_admin(HeldLock), "refresh", 3600)
    return page


@pytest.fixture
def trouble(stores):
    """Locks of several kinds, one with a waiter, one that was released by force, and one with a long name."""
    backend = stores["default"]
    busy = backend.lock("stock:42", owner="till 7")
    waiting = backend.lock("stock:42", on_lost="warn")
    with busy, backend.rwlock("prices").write, backend.semaphore("exports", limit=3), backend.lock("x" * 200):
        waiter = threading.Thread(target=waiting.acquire, kwargs={"timeout": 300})
        waiter.start()
        poll(lambda: backend.describe("stock:42").waiters, timeout=20, what="the waiter")
        yield busy
    waiter.join()


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)])
def test_no_serious_violation(page, stores, trouble, scheme, size):
    """No page has a serious violation of WCAG, in either theme and as cards on a phone."""
    page.size(*size)
    user = User.objects.get()
    LogEntry.objects.log_actions(user.pk, [HeldLock(id="default:stock:42", name="stock:42")], DELETION, "Released")
    page.emulate(scheme)
    found = {}
    for path in ("", "?tab=tasks", "default_3Astock_3A42/change/", "default_3Astock_3A42/delete/", "health/"):
        page.open(LIST + path)
        page.script("document.querySelectorAll('#nav-sidebar, #toggle-nav-sidebar').forEach((each) => each.remove())")
        if violations := page.violations():
            found[path or "list"] = violations
    assert found == {}


def test_store_down(page, redis_server):
    """With all stores down the page has one error and no count of locks."""
    redis_server.kill()
    page.open(f"{LIST}?alias=default")
    assert len(page.all(".redlock-seen li.error")) == 1
    assert "0 held locks" not in page.one("#redlock-live").text
    assert "(0)" not in page.one(".redlock-tabs").text
    assert page.violations() == []
    redis_server.start()
