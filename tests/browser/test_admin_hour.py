"""The chart of the last hour in a real browser. Each test also checks that the policy has blocked nothing."""

import pytest

from django_redlock.history.event_queue import event_queue
from tests.browser.chromium import PHONE
from tests.browser.conftest import LIST

DETAIL = f"{LIST}default_3Astock/change/"
# The acquired locks in the titles of the chart's columns, of which each minute has one.
DRAWN = """return [...document.querySelector('.redlock-plot').querySelectorAll('title')]
    .map((title) => Number(/(\\d+) acquired/.exec(title.textContent)?.[1] ?? 0)).reduce((sum, each) => sum + each, 0)"""


def happen(stores, times=3):
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


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_themes(page, stores, scheme):
    """Bars and labels have enough contrast in both themes."""
    page.emulate(scheme)
    happen(stores)
    page.open(DETAIL)
    contrast = page.script("""
        const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number)
            .map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
          return .2126 * r + .7152 * g + .0722 * b; };
        const ground = light(getComputedStyle(document.body).backgroundColor);
        const of = (part, what) => { const text = light(getComputedStyle(part)[what]);
            return (Math.max(text, ground) + .05) / (Math.min(text, ground) + .05); };
        return {
          text: [...document.querySelectorAll('.redlock-plot text')].map(part => of(part, 'fill')),
          words: [...document.querySelectorAll('.redlock-legend, .redlock-legend b, .redlock-events b')]
            .map(part => of(part, 'color')),
          bars: [...document.querySelectorAll('.redlock-plot .acquired, .redlock-plot .refused')]
            .map(part => of(part, 'fill')),
        };""")
    assert min(contrast["text"] + contrast["words"]) > 4.5, "WCAG AA, text"
    assert min(contrast["bars"]) > 2.4, "graphics, each beside its number in words"


def test_phone(page, stores):
    """On a phone the chart fits the width, and its texts can be read."""
    happen(stores)
    page.size(*PHONE)
    page.open(DETAIL)
    assert page.script("return document.documentElement.scrollWidth") <= PHONE[0]
    size = page.script("""const text = document.querySelector('.redlock-plot text');
        return text.getBoundingClientRect().height""")
    assert size >= 9
