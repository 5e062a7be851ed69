"""The charts and events of the last hour in the admin, through Django's client."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from xml.etree import ElementTree  # noqa: ICN001

import pytest

from django_redlock import locks
from django_redlock.admin.charts import charts
from django_redlock.history.event_queue import event_queue
from django_redlock.history.minute_stats import MinuteStats, bucket_of
from django_redlock.history.store import add
from django_redlock.models import make_pk
from tests.support.service import poll

LIST = "/admin/django_redlock/heldlock/"
EVIL = "<script>alert(1)</script>\"'&"
PLOT = '<svg class="redlock-plot"'
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def detail(client, stores):
    """`detail(name, using)`: the page of the lock as text, with all events so far."""
    from django.contrib.admin.utils import quote

    def detail(name, using="default"):
        event_queue.flush()
        return client.get(f"{LIST}{quote(make_pk(using, name))}/change/").content.decode()

    return detail


def an_hour(**last):
    """Return sixty minutes, the last with the given counts."""
    start = time.time() // 60 * 60
    empty = [MinuteStats(start - 60 * ago) for ago in range(59, 0, -1)]
    return [*empty, MinuteStats(start, **last)]


def drawn(plot) -> ElementTree.Element:
    return ElementTree.fromstring(  # noqa: S314  (it is ours)
        str(plot.picture).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    )


def bars(plot) -> dict[str, float]:
    return {rect.get("class"): float(rect.get("height")) for rect in drawn(plot).iter(f"{SVG}rect")}


def test_detail(detail, operator, using):
    """A lock's page has charts of its last hour, and its last events with owner and duration."""
    with locks[using].lock("stock", owner="till 7"):
        locks[using].lock("stock").acquire(blocking=False)
    page = detail("stock", using)
    assert page.count(PLOT) == 3
    assert "1 acquired, 1 refused" in page
    rows = re.findall(r'<b class="redlock-(\w+)">\w+</b> (.*?)</td>', page)
    assert [kind for kind, _ in rows] == ["released", "refused", "acquired"]
    assert re.fullmatch(r"by \S+ MainThread till 7 after \d+\.\d s", rows[2][1])
    assert re.fullmatch(r"after \d+\.\d s, taken by \S+ MainThread till 7", rows[1][1])


def test_forced(client, detail, operator, stores):
    """A forced release is listed as an event with the user's name."""
    lock = stores["default"].lock("stock", on_lost="warn")
    assert lock.acquire()
    page = client.get(f"{LIST}default_3Astock/delete/").content.decode()
    holding = re.search(r'name="holding" value="([^"]+)"', page)[1]
    client.post(f"{LIST}release/", {"holding": holding})
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
    """The health page has charts of each store with events."""
    with stores["default"].lock("a"), stores["default"].lock("b"):
        pass
    event_queue.flush()
    page = client.get(f"{LIST}health/").content.decode()
    assert page.count(PLOT) == 3
    assert re.search(r"<b>2</b> acquired", page)
    with stores["memory"].lock("a"):
        pass
    event_queue.flush()
    page = client.get(f"{LIST}health/").content.decode()
    ids = re.findall(r' id="(redlock-[^"]+)"', page)
    assert page.count(PLOT) == 6
    assert len(set(ids)) == len(ids)


def test_lost_locks_are_links(client, operator, stores):
    """The health page names the locks that were lost, with a link to their events."""
    add(stores["default"], int(time.time() // 60), {"": "l=3", "stock:1": "l=1", "a<b": "l=2", "calm": "a=1"})
    page = client.get(f"{LIST}health/").content.decode()
    text = page.split("Lost in the last hour:")[1].split("</p>")[0]
    links = re.findall(r'<a href="([^"]+)#redlock-events">(.*?)</a> \((\d)\)', text)
    assert [(name, number) for _, name, number in links] == [("a&lt;b", "2"), ("stock:1", "1")]
    assert all(client.get(url).status_code == 200 for url, _, _ in links)


def test_history_is_off(settings, client, detail, operator, stores):
    """With the history switched off no charts are shown."""
    options = {**settings.REDLOCK["default"]["OPTIONS"], "history": False}
    settings.REDLOCK = {**settings.REDLOCK, "default": {**settings.REDLOCK["default"], "OPTIONS": options}}
    with locks["default"].lock("stock"):
        assert PLOT not in detail("stock")


def test_without_permission(client, detail, user_with, stores):
    """A user without permission to view locks sees no history."""
    user_with()
    with stores["default"].lock("stock"):
        assert PLOT not in detail("stock")


class Parts(HTMLParser):
    """The elements of a page, and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_hostile_events(detail, operator, stores):
    """Names, labels and events of others are escaped, and the page has no script or style of theirs."""
    with stores["default"].lock(EVIL, owner={"label": EVIL, EVIL: EVIL}):
        stores["default"].lock(EVIL).acquire(blocking=False)
    add(stores["default"], int(time.time() // 60), {EVIL: f'a=1\n[1,"{"<b>"}",0,"<i>","<u>"]'})
    page = detail(EVIL)
    parts = Parts(page)
    assert not set(parts.tags) & {"i", "u"}
    assert "<script>alert" not in page
    assert "style" not in parts.attributes
    assert not [name for name in parts.attributes if name.startswith("on")]


# ── the pictures ─────────────────────────────────────────────────────────────────────────────


def test_counts_are_drawn():
    """Each kind of event has a bar as high as its count, and the chart has a text description."""
    counts, _, _ = charts(an_hour(acquired=8, refused=4, lost=2))
    found = bars(counts)
    assert found["acquired"] == pytest.approx(2 * found["refused"], rel=0.01)
    assert found["acquired"] == pytest.approx(4 * found["lost"], rel=0.01)
    assert [number for _, number, _ in counts.legend] == ["8", "4", "2"]
    picture = drawn(counts)
    assert picture.get("role") == "img"
    description = picture.find(f"{SVG}desc")
    assert description.get("id") == picture.get("aria-labelledby")
    assert description.text == "Acquired, refused, lost, the last hour: 8 acquired, 4 refused, 2 lost"
    assert picture.find(f"{SVG}g/{SVG}title").text.endswith(": 8 acquired, 4 refused, 2 lost")


def test_times_are_drawn():
    """The chart of durations shows p50 and p95."""
    _, waited, held = charts(an_hour(acquired=100, waited={bucket_of(0.01): 90, bucket_of(1): 10}))
    found = bars(waited)
    assert found["p95"] > 20 * found["p50"]
    assert [kind for kind, _, _ in waited.legend] == ["p50", "p95"]
    assert set(bars(held)) == set()


def test_bars_stay_within_the_chart():
    """All bars are within the chart, however small or large the numbers."""
    for counted in ({"acquired": 1}, {"acquired": 10**9}, {"acquired": 1, "waited": {0: 1}, "held": {56: 1}}):
        for plot in charts(an_hour(**counted)):
            for rect in drawn(plot).iter(f"{SVG}rect"):
                top, height = float(rect.get("y")), float(rect.get("height"))
                assert 8 <= top <= top + height <= 114.1


def test_events_are_few(detail, operator, stores, monkeypatch):
    """Only the last events are shown, the latest first."""
    from django.contrib import admin

    from django_redlock.models import HeldLock

    monkeypatch.setattr(admin.site.get_model_admin(HeldLock), "max_events", 3)
    for _ in range(4):
        with stores["default"].lock("stock"):
            pass
    assert re.findall(r'<b class="redlock-(\w+)">', detail("stock")) == ["released", "acquired", "released"]


def test_store_down(client, one_down, operator):
    """A store that is not reachable has no charts, the page says why, and the other stores have charts."""
    with one_down["default"].lock("a"):
        pass
    event_queue.flush()
    page = client.get(f"{LIST}health/")
    assert page.status_code == 200
    assert page.content.decode().count(PLOT) == 3
    assert client.get(f"{LIST}broken_3Aa/change/").status_code == 200
