"""The admin under popular themes, in a real browser."""

import pytest

from django_redlock.backends.redis import RedisBackend
from tests.browser.chromium import Browser, Chromium
from tests.browser.conftest import LIST
from tests.browser.theme import site


@pytest.fixture(params=["unfold", "jazzmin", "grappelli"])
def page(request, running, redis_url, tmp_path):
    """A window on the list, under a theme."""
    pytest.importorskip(request.param)
    chromium = running(Chromium)
    with site(request.param, redis_url, tmp_path / "db.sqlite3") as (url, session), Browser(chromium, url) as browser:
        browser.log_in(session)
        browser.open(LIST)
        yield browser


def is_within(page, part):
    box = part.rect
    return part.is_displayed() and box["x"] >= 0 and box["x"] + box["width"] <= page.script("return innerWidth")


def test_theme(page, redis_url):
    """The list follows what happens, keeps selection and actions, and fits; the page of a lock has its name."""
    backend = RedisBackend(redis_url)
    with backend.lock("stock:1"):
        page.until(lambda: page.names() == ["stock:1"])
        with backend.lock("stock:2"):
            page.until(lambda: page.names() == ["stock:1", "stock:2"])
            page.until(lambda: page.all("input.action-select")[1].click() is None)
            page.refreshed(2)
            assert [box.is_selected() for box in page.all("input.action-select")] == [False, True]
            page.until(lambda: is_within(page, page.one("select[name=action]").find_element("xpath", "..")))
            page.until(lambda: all(is_within(page, tab) for tab in page.all(".redlock-tabs a")))
            page.all("input.action-select")[1].click()
        page.until(lambda: page.names() == ["stock:1"])
        page.press("a.redlock-name")
        page.until(lambda: "stock:1" in page.one(".redlock-facts").text)  # a refresh replaces it at any time
        page.until(lambda: is_within(page, page.one(".redlock-actions a")))
    page.until(lambda: "Nobody holds stock:1" in page.one("#redlock-live").text)
    backend.close()
