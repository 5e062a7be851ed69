"""The list of live locks in the admin, through Django's client, on a real Redis."""

import contextlib
import html
import re
import time

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from redis import Redis

from django_redlock.core.owner import describe_owner
from django_redlock.models import HeldLock, make_pk

LIST = "/admin/django_redlock/heldlock/"
EVIL = "<script>alert(1)</script>\"'&"


def names_in(response):
    return [
        html.unescape(name)
        for name in re.findall(r'class="redlock-name" title="(.*?)">', response.content.decode(), re.DOTALL)
    ]


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
        assert "till 7" in page.content.decode()
    assert names_in(client.get(LIST)) == []


@pytest.mark.parametrize(
    ("search", "found"), [("\\", r"a\b"), ("[b", "a[b]"), ("a[b]", "a[b]"), ("a?b", r"a\b"), ("*b]", "a[b]")]
)
def test_search(client, stores, operator, search, found):
    """The search takes a part of the name or a glob, in which only * and ? are wildcards."""
    with stores["default"].lock(r"a\b"), stores["default"].lock("ab"), stores["default"].lock("a[b]"):
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


def test_paging(client, stores, operator):
    """The list has a hundred locks on a page."""
    held = [stores["memory"].lock(f"lock:{number:03}") for number in range(130)]
    assert all(lock.acquire() for lock in held)
    first, second = client.get(LIST), client.get(LIST, {"p": 2})
    assert len(names_in(first)) == 100
    assert names_in(second) == [f"lock:{number:03}" for number in range(100, 130)]
    assert "130 held locks" in first.content.decode()
    for lock in held:
        lock.release()


def test_limited_list_says_so(client, stores, operator, show_at_most):
    show_at_most(3)
    held = [stores["default"].lock(f"lock:{number}") for number in range(5)]
    assert all(lock.acquire() for lock in held)
    page = client.get(LIST)
    assert len(names_in(page)) == 3
    assert "3 locks of the first 1000 keys are shown" in page.content.decode()
    assert "?scan=10" in page.content.decode()
    show_at_most(1)
    assert "1 lock of the first 1000 keys is shown" in client.get(LIST).content.decode()
    further = client.get(LIST, {"scan": "10"})
    assert len(names_in(further)) == 5
    assert "There may be more" not in further.content.decode()
    for lock in held:
        lock.release()


def test_exact_name_is_found_beyond_the_bounds(client, stores, operator, show_at_most):
    """A search for an exact name finds the lock beyond the limits."""
    show_at_most(1)
    held = [stores["default"].lock(f"lock:{number}{'0' * 3}") for number in range(1, 4)]
    held += [stores["default"].lock(f"a lock:{number}000") for number in range(1, 4)]
    assert all(lock.acquire() for lock in held)
    for number in range(1, 4):
        assert f"lock:{number}000" in names_in(client.get(LIST, {"q": f"lock:{number}000"}))
    for lock in held:
        lock.release()


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


def test_text_of_holders_is_escaped(client, stores, operator):
    """Names, labels and fields of owners are escaped in the list, on the page and in the question."""
    owner = {"label": EVIL, EVIL: EVIL, "task": EVIL, "host": EVIL, "thread": EVIL}
    with stores["default"].lock(EVIL, owner=owner):
        page = client.get(LIST)
        assert names_in(page) == [EVIL]
        detail = client.get(f"{LIST}{quote(f'default:{EVIL}')}/change/")
        question = client.get(f"{LIST}{quote(f'default:{EVIL}')}/delete/")
    for each in (page, detail, question):
        assert each.status_code == 200
        assert "<script>alert" not in each.content.decode()
        assert "&lt;script&gt;alert" in each.content.decode()


def test_detail_of_a_lock_with_waiters(client, stores, operator, own_thread):
    """A lock's page shows the waiters in order."""
    backend = stores["memory"]
    waiter = backend.lock("busy", owner="patient one")
    with backend.lock("busy"):
        waiting = own_thread(lambda: waiter.acquire(timeout=120))
        own_thread.until(lambda: backend.describe("busy").waiters == 1)
        page = client.get(f"{LIST}memory_3Abusy/change/").content.decode()
        assert "1 waiter" in page
        assert "patient one" in page
    waiting.join(20)
    waiter.release()


def test_detail_in_a_store_with_a_bad_entry(client, stores, operator, settings):
    """The page of a lock in a store whose settings are wrong says what is wrong."""
    settings.REDLOCK = {**settings.REDLOCK, "wrong": {**settings.REDLOCK["default"], "OPTIONS": {"node_timeou": 5}}}
    page = client.get(f"{LIST}wrong_3Ax/change/")
    assert page.status_code == 200
    assert "node_timeou" in page.content.decode()
    assert "Nobody holds" not in page.content.decode()


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
    """With only `view_heldlock` all pages are shown and no release is offered."""
    user_with("view_heldlock")
    with stores["default"].lock("stock"):
        response = client.get(LIST + page)
    assert response.status_code == 200
    assert "by force …" not in response.content.decode()
    assert "action-select" not in response.content.decode()


def test_index_shows_the_model_by_permission(client, stores, user_with):
    """The admin's index links to the list for users with permission."""
    user_with("view_heldlock")
    assert LIST in client.get("/admin/").content.decode()


def test_detail_of_several_holders(client, stores, operator, using):
    """The page of a lock with several holders names each, with how long it has held."""
    first, second = (stores[using].semaphore("permits", limit=2, owner=label) for label in ("one", "two"))
    with first, second:
        page = client.get(f"{LIST}{quote(make_pk(using, 'permits'))}/change/")
    assert page.status_code == 200
    table = page.content.decode().split("All holders</h2>")[1].split("</table>")[0]
    rows = re.findall(r"<td>[^<]* · (one|two)</td><td>\d\.\d s</td>", table)
    assert sorted(rows) == ["one", "two"]


def raw(backend):
    """A client of the Redis that ``backend`` uses."""
    host, port = backend.nodes[0].known_pool(None).where.split(":")
    return Redis(host=host, port=int(port))


def test_tabs(client, stores, operator):
    """Locks and tasks have a tab each, with their number."""
    record = b"queued run-1 sent-1 9999999999999 next-1 0 " + describe_owner({"label": "settle", "task_id": "1"})
    with stores["default"].lock("stock"):
        with raw(stores["default"]) as redis:
            redis.hset("redlock:{settle(17)}", "run-1", record)
        locks, tasks = client.get(LIST), client.get(LIST, {"tab": "tasks"})
    assert names_in(locks) == ["stock"]
    assert names_in(tasks) == ["settle(17)"]
    assert "queued or running for" in tasks.content.decode().lower()
    assert "record kept for" in tasks.content.decode().lower()
    assert "longest wait" in locks.content.decode().lower()
    assert "1 held lock" in locks.content.decode()
    assert re.search(r"\b1 task\s", tasks.content.decode()), "the footer counts tasks"


@pytest.mark.parametrize(
    "query", [{"q": EVIL}, {"host": EVIL}, {"task": EVIL}, {"kind": EVIL}, {"alias": EVIL}, {"scan": EVIL}]
)
def test_filters_are_escaped(client, stores, operator, query):
    assert "<script>alert" not in client.get(LIST, query).content.decode()


def test_pages_that_are_not_there(client, stores, operator):
    assert client.get(f"{LIST}nowhere_3Ax/change/").status_code == 404
    assert client.get(f"{LIST}add/").status_code == 403


def test_most_waiters_first_beyond_the_limit(client, stores, operator, show_at_most):
    """Beyond the limit the list shows the locks with the most waiters, then those with the longest wait."""
    show_at_most(3)
    waiting = {"calm": [], "one": [5], "long": [600], "crowd": [1, 2, 3], "two": [7, 8]}
    with contextlib.ExitStack() as held, raw(stores["default"]) as redis:
        for name, seconds in waiting.items():
            held.enter_context(stores["default"].lock(name, ttl=60))
            for number, ago in enumerate(seconds):
                owner = describe_owner({"since": time.time() - ago})
                redis.zadd(f"redlock:{{{name}}}:waiters", {b"%024d " % number + owner: 9e12})
        assert names_in(client.get(LIST)) == ["crowd", "two", "long"]
        assert names_in(client.get(LIST, {"o": "-6"})) == ["long", "two", "crowd"], "longest wait first"
