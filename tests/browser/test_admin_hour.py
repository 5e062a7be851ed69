"""The chart of the last hour in a real browser. Each test also checks that the policy has blocked nothing."""

from django_redlock.history.event_queue import event_queue
from tests.browser.chromium import PHONE
from tests.browser.conftest import LIST

DETAIL = f"{LIST}default_3Astock/change/"
# The acquired locks in the titles of the chart's columns, of which each minute has one.
DRAWN = """return [...document.querySelector('.redlock-plot').querySelectorAll('title')]
    .map((title) => Number(/(\\d+) acquired/.exec(title.textContent)?.[1] ?? 0)).reduce((sum, each) => sum + each, 0)"""


def happen(stores, times):
    """Acquire and refuse locks, and flush the events."""
    for _ in range(times):
        with stores["default"].lock("stock"):
            stores["default"].lock("stock").acquire(blocking=False)
    event_queue.flush()


def test_pictures_follow(page, stores):
    """The chart of an open page is updated without a reload."""
    happen(stores, 1)
    page.open(DETAIL)
    page.script("window.mine = true")
    assert page.one(".redlock-legend .acquired b").text == "1"
    happen(stores, 4)
    page.until(lambda: page.one(".redlock-legend .acquired b").text == "5")
    page.until(lambda: page.script(DRAWN) == 5)
    assert len(page.all(".redlock-events tbody tr")) > 3
    assert page.script("return window.mine")


def test_phone(page, stores):
    """On a phone the chart fits the width, and its texts can be read."""
    happen(stores, 3)
    page.size(*PHONE)
    page.open(DETAIL)
    assert page.script("return document.documentElement.scrollWidth") <= PHONE[0]
    size = page.script("""const text = document.querySelector('.redlock-plot text');
        return text.getBoundingClientRect().height""")
    assert size >= 9
