"""The list of live locks in the admin, through Django's client, on a real Redis."""

import contextlib
import html
import re
import time

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User

from django_redlock.core.owner import describe_owner
from django_redlock.models import HeldLock

LIST = "/admin/django_redlock/heldlock/"
EVIL = "<script>alert(1)</script>\"'&"


def names_in(response):
    return list(map(html.unescape, re.findall(r'class="redlock-name" title="(.*?)">', response.text, re.DOTALL)))


@pytest.fixture
def hold(stores):
    """`hold(*names)`: hold these locks of `default`, or of another store, until the end of the test."""
    with contextlib.ExitStack() as held:
        yield lambda *names, using="default": [held.enter_context(stores[using].lock(name)) for name in names]


@pytest.fixture
def show_at_most(monkeypatch):
    """`show_at_most(3)`: the list shows no more locks than that."""
    return lambda number: monkeypatch.setattr(admin.site.get_model_admin(HeldLock), "max_locks", number)


def test_lists_live_locks(client, stores, operator):
    """The list has a row with the holder for each lock of each store, until the lock is released."""
    with stores["default"].lock("stock:42", owner="till 7"):
        time.sleep(0.002)  # times are listed in milliseconds
        with stores["memory"].lock("invoice:7"):
            page = client.get(LIST)
        assert names_in(page) == ["stock:42", "invoice:7"]
        assert "till 7" in page.text
    assert names_in(client.get(LIST)) == []


@pytest.mark.parametrize(
    ("search", "found"), [("\\", r"a\b"), ("[b", "a[b]"), ("a[b]", "a[b]"), ("a?b", r"a\b"), ("*b]", "a[b]")]
)
def test_search(client, hold, operator, search, found):
    """The search takes a part of the name or a glob, in which only * and ? are wildcards."""
    hold(r"a\b", "ab", "a[b]")
    assert names_in(client.get(LIST, {"q": search})) == [found]


def test_filters(client, stores, operator):
    """The filters select by store, kind and host, and offer only values that occur."""
    with stores["default"].lock("a"), stores["memory"].lock("b") as held:
        assert names_in(client.get(LIST, {"alias": "memory"})) == ["b"]
        assert names_in(client.get(LIST, {"kind": "mutex"})) == ["a", "b"]
        assert names_in(client.get(LIST, {"kind": "semaphore"})) == []
        assert names_in(client.get(LIST, {"host": held.owner.host})) == ["a", "b"]
        assert names_in(client.get(LIST, {"host": "elsewhere"})) == []


@pytest.mark.parametrize("step", [100, -100])
def test_sorting(client, stores, operator, passing_time, step):
    """The list can be sorted by each column, and the time that passes meanwhile does not change the order."""
    passing_time(step)
    terms = {"long": (240, 9), "brief": (60, 6), "middle": (120, 3)}  # seconds of lease, seconds held
    with contextlib.ExitStack() as held:
        for name, (ttl, passed) in terms.items():
            owner = {"since": time.time() - passed}
            held.enter_context(stores["default"].lock(name, ttl=ttl, owner=owner))
        column = ["checkbox", "lock", "holder", "held_for", "left"].index("left")
        assert names_in(client.get(LIST, {"o": str(column)})) == ["brief", "middle", "long"]
        assert names_in(client.get(LIST, {"o": f"-{column}"})) == ["long", "middle", "brief"]
        assert names_in(client.get(LIST, {"o": "3"})) == ["middle", "brief", "long"], "held for: the youngest first"


def test_paging(client, hold, operator):
    """The list has a hundred locks on a page."""
    names = [f"lock:{number:03}" for number in range(130)]
    hold(*names, using="memory")
    first, second = client.get(LIST), client.get(LIST, {"p": 2})
    assert (names_in(first), names_in(second)) == (names[:100], names[100:])
    assert "130 held locks" in first.text


def test_limited_list_says_so(client, hold, operator, show_at_most):
    show_at_most(3)
    hold(*"abcde")
    page = client.get(LIST)
    assert len(names_in(page)) == 3
    assert "3 locks of the first 1000 keys are shown" in page.text
    assert "?scan=10" in page.text
    show_at_most(1)
    assert "1 lock of the first 1000 keys is shown" in client.get(LIST).text
    further = client.get(LIST, {"scan": "10"})
    assert len(names_in(further)) == 5
    assert "There may be more" not in further.text


def test_exact_name_is_found_beyond_the_limit(client, hold, operator, show_at_most):
    show_at_most(1)
    names = [f"lock:{number}000" for number in range(1, 4)]
    hold(*names, *(f"a {name}" for name in names))
    assert all(name in names_in(client.get(LIST, {"q": name})) for name in names)


def test_store_down(client, one_down, operator):
    """A store that is not reachable has a message of its own on each page, and the locks of other stores are listed."""
    with one_down["default"].lock("stock:42"):
        page = client.get(LIST)
    assert names_in(page) == ["stock:42"]
    assert "<b>broken</b> is unavailable" in page.text
    assert "<b>default</b> is unavailable" not in page.text
    detail = client.get(f"{LIST}broken_3Ax/change/").text
    assert "is unavailable" in detail
    assert "Nobody holds" not in detail
    health = client.get(f"{LIST}health/").text
    assert all(f"<h2>{store}</h2>" in health for store in ("default", "memory", "broken"))
    assert "Connection refused" in health


@pytest.mark.parametrize("page", ["", f"{quote(f'default:{EVIL}')}/change/", f"{quote(f'default:{EVIL}')}/delete/"])
def test_text_of_holders_is_escaped(client, stores, operator, page):
    """Names, labels and fields of owners are escaped."""
    owner = {"label": EVIL, EVIL: EVIL, "task": EVIL, "host": EVIL, "thread": EVIL}
    with stores["default"].lock(EVIL, owner=owner):
        response = client.get(LIST + page)
    assert response.status_code == 200
    assert "<script>alert" not in response.text
    assert "&lt;script&gt;alert" in response.text


def test_detail_shows_the_waiters(client, stores, operator, own_thread):
    backend = stores["memory"]
    waiter = backend.lock("busy", owner="patient one")
    with backend.lock("busy"):
        waiting = own_thread(lambda: waiter.acquire(timeout=120))
        own_thread.until(lambda: backend.describe("busy").waiters == 1)
        page = client.get(f"{LIST}memory_3Abusy/change/").text
        assert "1 waiter" in page
        assert "patient one" in page
    waiting.join(20)
    waiter.release()


def test_detail_in_a_store_with_wrong_settings(client, stores, operator, settings):
    settings.REDLOCK = {**settings.REDLOCK, "wrong": {**settings.REDLOCK["default"], "OPTIONS": {"node_timeou": 5}}}
    page = client.get(f"{LIST}wrong_3Ax/change/")
    assert page.status_code == 200
    assert "node_timeou" in page.text
    assert "Nobody holds" not in page.text


# ── who may ──────────────────────────────────────────────────────────────────────────────────

PAGES = ["", "health/", "default_3Astock/change/", "default_3Astock/history/"]


@pytest.mark.parametrize("page", PAGES)
def test_who_may(client, stores, user_with, page):
    """Visitors and users who are not staff are sent to the login page, staff without permission get a 403."""
    assert "/login/" in client.get(LIST + page)["Location"]
    user = user_with("view_heldlock", "delete_heldlock", staff=False)
    assert client.get(LIST + page).status_code == 302
    user.user_permissions.clear()
    User.objects.update(is_staff=True)
    assert client.get(LIST + page).status_code == 403


@pytest.mark.parametrize("page", PAGES)
def test_view_only(client, stores, user_with, page):
    """With only `view_heldlock` the index links to the list, all pages are shown and no release is offered."""
    user_with("view_heldlock")
    assert LIST in client.get("/admin/").text
    with stores["default"].lock("stock"):
        response = client.get(LIST + page)
    assert response.status_code == 200
    assert "by force …" not in response.text
    assert "action-select" not in response.text


def test_tabs(client, stores, operator, redis_server):
    """Locks and tasks have a tab each, with their number."""
    record = b"queued run-1 sent-1 9999999999999 next-1 0 " + describe_owner({"label": "settle", "task_id": "1"})
    with stores["default"].lock("stock"):
        with redis_server.client() as redis:
            redis.hset("redlock:{settle(17)}", "run-1", record)
        locks, tasks = client.get(LIST), client.get(LIST, {"tab": "tasks"})
    assert names_in(locks) == ["stock"]
    assert names_in(tasks) == ["settle(17)"]
    assert "1 held lock" in locks.text
    assert "longest wait" in locks.text.lower()
    assert all(heading in tasks.text.lower() for heading in ("queued or running for", "record kept for"))
    assert re.search(r"\b1 task\s", tasks.text), "the footer counts tasks"


@pytest.mark.parametrize("parameter", ["q", "host", "task", "kind", "alias", "scan"])
def test_filters_are_escaped(client, stores, operator, parameter):
    assert "<script>alert" not in client.get(LIST, {parameter: EVIL}).text


def test_pages_that_are_not_there(client, stores, operator):
    assert client.get(f"{LIST}nowhere_3Ax/change/").status_code == 404
    assert client.get(f"{LIST}add/").status_code == 403


def test_most_waiters_first_beyond_the_limit(client, stores, operator, show_at_most, redis_server):
    """Beyond the limit the list shows the locks with the most waiters, then those with the longest wait."""
    show_at_most(3)
    waiting = {"calm": [], "one": [5], "long": [600], "crowd": [1, 2, 3], "two": [7, 8]}
    with contextlib.ExitStack() as held, redis_server.client() as redis:
        for name, seconds in waiting.items():
            held.enter_context(stores["default"].lock(name, ttl=60))
            for number, ago in enumerate(seconds):
                owner = describe_owner({"since": time.time() - ago})
                redis.zadd(f"redlock:{{{name}}}:waiters", {b"%024d " % number + owner: 9e12})
        assert names_in(client.get(LIST)) == ["crowd", "two", "long"]
        assert names_in(client.get(LIST, {"o": "-6"})) == ["long", "two", "crowd"], "longest wait first"
