"""The chart and the events of the last hour in the admin, through Django's client."""

import re
import time
from xml.etree import ElementTree  # noqa: ICN001

import pytest
from django.contrib.admin.utils import quote
from django.template.loader import render_to_string

from django_redlock import locks
from django_redlock.admin.charts import chart
from django_redlock.history.event_queue import event_queue
from django_redlock.history.minutes import MinuteStats, add
from django_redlock.models import make_pk
from tests.django.admin.test_list import EVIL, LIST
from tests.django.admin.test_release import holdings
from tests.support.service import poll

PLOT = '<svg class="redlock-plot"'
SVG = "http://www.w3.org/2000/svg"


@pytest.fixture
def detail(client, stores):
    """`detail(name)`: the page of the lock as text, with all events so far."""

    def detail(name):
        event_queue.flush()
        return client.get(f"{LIST}{quote(make_pk('default', name))}/change/").text

    return detail


def test_detail(detail, operator, stores):
    """A lock's page has a chart of its last hour, and its last events with owner and duration."""
    with locks["default"].lock("stock", owner="till 7"):
        locks["default"].lock("stock").acquire(blocking=False)
    page = detail("stock")
    assert page.count(PLOT) == 1
    assert "1 acquired, 1 refused" in page
    rows = re.findall(r'<b class="redlock-(\w+)">\w+</b> (.*?)</td>', page)
    assert [kind for kind, _ in rows] == ["released", "refused", "acquired"]
    assert re.fullmatch(r"by \S+ MainThread till 7 after \d+\.\d s", rows[2][1])
    assert re.fullmatch(r"after \d+\.\d s, taken by \S+ MainThread till 7", rows[1][1])


def test_forced(client, detail, operator, stores):
    """A forced release is listed as an event with the user's name."""
    assert stores["default"].lock("stock", on_lost="warn").acquire()
    client.post(f"{LIST}release/", {"holding": holdings(client.get(f"{LIST}default_3Astock/delete/"))})
    assert re.search(r'<b class="redlock-forced">forced</b> released by \S+ .* operator<', detail("stock"))


def test_thread_that_has_ended(detail, operator, stores, own_thread):
    """The page of a lock whose holder's thread has ended says so, until another holds the lock."""
    held = stores["default"].lock("stock", ttl=1.5)
    own_thread(held.acquire).join(60)
    poll(lambda: "the thread or task has ended" in detail("stock"), timeout=60, what="the first renewal")
    held.release()
    with stores["default"].lock("stock"):
        assert "the thread or task has ended" not in detail("stock")


def test_health(client, operator, stores):
    """The health page has a chart of each store with events, and its losses and forced releases, with links."""
    with stores["default"].lock("a"), stores["default"].lock("b"):
        pass
    held = stores["default"].lock("a<b", on_lost="warn")
    assert held.acquire()
    stores["default"].force_release("a<b", by="eve")
    event_queue.flush()
    page = client.get(f"{LIST}health/").text
    assert page.count(PLOT) == 1
    assert re.search(r"<b>3</b> acquired", page)
    [(url, name)] = re.findall(r'<a href="([^"]+)">([^<]+)</a> <b class="redlock-forced">', page)
    assert name == "a&lt;b"
    assert client.get(url).status_code == 200


def test_history_is_off(settings, detail, operator, stores):
    options = {**settings.REDLOCK["default"]["OPTIONS"], "history": False}
    settings.REDLOCK = {**settings.REDLOCK, "default": {**settings.REDLOCK["default"], "OPTIONS": options}}
    with locks["default"].lock("stock"):
        assert PLOT not in detail("stock")


def test_hostile_events(detail, operator, stores):
    """Names, labels and events of others are escaped, and the page has no script or style of theirs."""
    with stores["default"].lock(EVIL, owner={"label": EVIL, EVIL: EVIL}):
        stores["default"].lock(EVIL).acquire(blocking=False)
    add(stores["default"], int(time.time() // 60), [(EVIL, "events", '[1,"<b>","<s>",0,"<i>","<u>"]\n')])
    page = detail(EVIL)
    assert not set(re.findall(r"<(\w+)", page)) & {"i", "s", "u"}
    assert "<script>alert" not in page
    assert not re.search(r"<[^>]*\s(style|on\w+)=", page)


def drawn(**last):
    """Return the chart of an hour whose last minute has these counts, as a drawing, and the height of each bar."""
    start = time.time() // 60 * 60
    minutes = [*(MinuteStats(start - 60 * ago) for ago in range(59, 0, -1)), MinuteStats(start, **last)]
    page = render_to_string("admin/django_redlock/heldlock/last_hour.html", {"chart": chart(minutes)})
    text = page[page.index(PLOT) : page.index("</figure>")]
    drawing = ElementTree.fromstring(text.replace("<svg ", f'<svg xmlns="{SVG}" ', 1))  # noqa: S314
    return drawing, {rect.get("class"): float(rect.get("height")) for rect in drawing.iter(f"{{{SVG}}}rect")}


def test_counts_are_drawn():
    """Each kind of event has a bar as high as its count, and the chart has a text description."""
    drawing, heights = drawn(acquired=8, refused=4, lost=2)
    assert heights == {"hit": 14, "acquired": 8, "refused": 4, "lost": 2}
    assert drawing.get("aria-label") == "The last hour: 8 acquired, 4 refused, 2 lost"
    [title] = [each.text for each in drawing.iter(f"{{{SVG}}}title") if each.text.endswith(" lost")]
    assert title.endswith(": 8 acquired, 4 refused, 2 lost")


def test_a_rare_event_is_seen():
    """A bar is never lower than a hundredth of the chart."""
    assert drawn(acquired=10**9, lost=1)[1]["lost"] == pytest.approx(10**7)
