"""The admin's list in a real browser. Each test also checks that the policy has blocked nothing."""

import threading

import pytest
from selenium.webdriver.common.keys import Keys

from django_redlock.admin.queryset import LockRows
from tests.browser.chromium import PHONE
from tests.browser.conftest import LIST


def test_follows_what_happens(page, stores):
    """Locks appear and disappear on an open page without a reload."""
    page.script("window.mine = true")
    assert page.names() == []
    with stores["default"].lock("b"):
        page.until(lambda: page.names() == ["b"])
        with stores["memory"].lock("a"):
            page.until(lambda: page.names() == ["b", "a"])
            with stores["default"].lock("c"):
                page.until(lambda: page.names() == ["b", "a", "c"])
        page.until(lambda: page.names() == ["b"])
    page.until(lambda: page.names() == [])
    assert page.script("return window.mine")


def test_keeps_focus_and_scroll(page, stores):
    held = [stores["default"].lock(f"lock:{number:02}") for number in range(60)]
    assert all(lock.acquire() for lock in held)
    page.open(f"{LIST}?o=1")  # by name
    page.until(lambda: len(page.names()) == 60)
    page.script("window.scrollTo(0, 700); document.querySelectorAll('a.redlock-name')[31].focus()")
    place = page.script("return document.querySelectorAll('a.redlock-name')[31].getBoundingClientRect().top")
    held[0].release()
    with stores["default"].lock("lock:00.5"):
        page.until(lambda: "lock:00.5" in page.names())
        page.refreshed(2)
        assert page.script("return document.activeElement.textContent") == "lock:31"
        assert abs(page.script("return document.activeElement.getBoundingClientRect().top") - place) < 2
    for lock in held[1:]:
        lock.release()


def test_stops_while_something_is_selected(page, stores):
    """While a lock is selected, the list stays as it is, and goes on afterwards."""
    with stores["default"].lock("a"):
        page.until(lambda: page.names() == ["a"])
        page.press("input.action-select")
        assert "1 of 1 selected" in page.one(".action-counter").text
        with stores["default"].lock("b"):
            page.refreshed(2)
            assert page.names() == ["a"]
            page.press("input.action-select")
            page.until(lambda: page.names() == ["a", "b"])
            assert "0 of 2 selected" in page.one(".action-counter").text


def test_selecting_all_includes_newcomers(page, stores):
    """The checkbox in the table's head selects rows that came after the page was loaded, too."""
    with stores["default"].lock("a"):
        page.until(lambda: page.names() == ["a"])
        with stores["default"].lock("b"):
            page.until(lambda: page.names() == ["a", "b"])
            page.one("#action-toggle").click()
            assert [box.is_selected() for box in page.all("input.action-select")] == [True, True]
            assert "2 of 2 selected" in page.one(".action-counter").text


def test_pause(page, stores, monkeypatch):
    """A paused page stays as it is, although a refresh is under way, and goes on afterwards."""
    under_way, go_on = threading.Event(), threading.Event()
    read = LockRows.read

    def hang(*args, **options):
        under_way.set()
        assert go_on.wait(60)
        return read(*args, **options)

    def requests():
        return page.script(
            "return performance.getEntriesByType('resource').filter((e) => e.name === location.href).length"
        )

    monkeypatch.setattr(LockRows, "read", hang)
    assert under_way.wait(60)
    ended = requests()
    page.one("#redlock-pause").click()
    assert page.one("#redlock-pause").get_attribute("aria-pressed") == "true"
    with stores["default"].lock("a"):
        go_on.set()
        page.until(lambda: requests() > ended)
        page.refreshed(2)
        assert page.names() == []
        page.one("#redlock-pause").click()
        page.until(lambda: page.names() == ["a"])


def test_store_goes_down_and_comes_back(page, stores, redis_server):
    with stores["memory"].lock("still here"):
        page.until(lambda: page.names() == ["still here"])
        redis_server.kill()
        page.until(lambda: "default is unavailable" in page.one(".redlock-seen").text)
        assert page.names() == ["still here"]
        redis_server.start()
        page.until(lambda: not page.all(".redlock-seen li"))


def test_phone(page, stores):
    """On a phone the page fits the width, even with long names."""
    page.size(*PHONE)
    with stores["default"].lock("x" * 300), stores["default"].lock("stock"):
        page.open(LIST)
        page.until(lambda: len(page.names()) == 2)
        assert page.script("return document.documentElement.scrollWidth") <= PHONE[0]
        beyond = "const list = document.querySelector('.results'); return list.scrollWidth - list.clientWidth"
        assert page.script(beyond) <= 0
        page.until(lambda: all(box.is_displayed() for box in page.all("input.action-select")))


def test_hostile_names(page, stores):
    """Names and owners with markup are escaped, on the page as loaded and as refreshed."""
    evil = "<img src=x onerror=document.body.id='pwned'>"
    with stores["default"].lock(evil, owner={"label": evil, evil: evil}):
        page.until(lambda: page.names() == [evil])
        page.refreshed(2)
        page.press("a.redlock-name")
        page.until(lambda: evil in page.one(".redlock-facts").text)
        page.refreshed(1)
        assert page.script("return document.body.id") != "pwned"
        assert page.all("#redlock-live img") == []


def test_detail_follows(page, stores):
    """The page of an open lock follows it: held, then free."""
    with stores["default"].lock("stock", owner="till 7"):
        page.until(lambda: page.names() == ["stock"])
        page.press("a.redlock-name")
        page.until(lambda: "till 7" in page.one("#redlock-live").text)
    page.until(lambda: "Nobody holds stock" in page.one("#redlock-live").text)


def test_health(page, stores, redis_server):
    """The health page shows each store, and marks one that goes down."""
    page.open(f"{LIST}health/")
    assert page.all(".redlock-bad") == []
    redis_server.kill()
    page.until(lambda: page.all(".redlock-bad"))


class TestForceRelease:
    @pytest.fixture
    def lock(self, stores):
        lock = stores["default"].lock("line\nbreak\r\0", on_lost="warn")
        lock.acquire()
        return lock

    def release(self, page, lock):
        """Select the only lock of the list, and confirm its release."""
        page.press("input.action-select")
        page.one("select[name=action] option[value=force_release]").click()
        page.one("button[name=index]").click()
        page.arrive(".redlock-danger")
        assert lock.owned()
        page.one(".redlock-danger").click()
        page.until(lambda: "was released" in page.one(".messagelist .success").text)
        assert not lock.locked()

    def test_with_the_mouse(self, page, lock):
        """A lock with any name can be selected, and released after a confirmation."""
        page.until(lambda: len(page.names()) == 1)
        self.release(page, lock)

    def test_without_javascript(self, page, lock):
        """List, refresh, selection and release work without JavaScript, and the pause button is hidden."""
        page.scripting(False)
        page.one("#redlock-refresh").click()
        page.arrive("a.redlock-name")
        assert not page.one("#redlock-pause").is_displayed()
        self.release(page, lock)

    def test_by_keyboard(self, page, lock):
        page.until(lambda: len(page.names()) == 1)

        def tab_to(selector):
            for _ in range(60):
                if page.script("return document.activeElement.matches(arguments[0])", selector):
                    return page.driver.switch_to.active_element
                page.until(lambda: page.driver.switch_to.active_element.send_keys(Keys.TAB) is None)
            raise AssertionError(f"{selector} can't be reached by Tab")

        tab_to("select[name=action]").send_keys("R")
        # A refresh may replace it meanwhile.
        page.until(lambda: tab_to("input.action-select").send_keys(Keys.SPACE) is None)
        page.refreshed()
        page.script("document.querySelector('select[name=action]').focus()")
        tab_to("button[name=index]").send_keys(Keys.ENTER)
        page.arrive(".redlock-confirm")
        tab_to(".redlock-danger").send_keys(Keys.ENTER)
        page.until(lambda: "was released" in page.one(".messagelist .success").text)
        assert not lock.locked()
