"""Each kind of lock, and locks with several holders, in the admin and in the commands."""

import re
from types import ModuleType

import pytest
from django.apps.registry import Apps
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db import models
from django.urls import path

from django_redlock.admin import HeldLockAdmin
from django_redlock.models import HeldLock
from django_redlock.testing.conformance.shared_handles import MAKE
from tests.django import urls
from tests.django.admin.test_list import LIST, names_in
from tests.django.admin.test_release import asked, holdings, said
from tests.django.management.command_result import Done

NAMES = {"striped": ["{x}#0", "{x}#1", "{x}#2"], "multilock": ["x", "x:2"]}


@pytest.mark.parametrize(
    ("kind", "options", "fact"),
    [("semaphore", {"limit": 3}, ("Limit", "3")), ("lock", {"max_hold": 90}, ("Longest hold allowed", "1 min 30 s"))],
)
def test_facts(client, stores, operator, kind, options, fact):
    """The page shows a semaphore's limit and max_hold."""
    with getattr(stores["default"], kind)("report", **options):
        page = client.get(f"{LIST}default_3Areport/change/").text
    found = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', page)
    assert fact in [(label, re.sub("<[^>]*>", "", value)) for label, value in found]


@pytest.mark.parametrize("shown", [True, False], ids=["with results", "without"])
def test_task_links_to_its_result_in_the_same_admin(client, stores, operator, settings, shown):
    """With the results of django-celery-results in the same admin a task id is a link, and otherwise text."""

    class TaskResult(models.Model):  # noqa: DJ008
        class Meta:
            app_label, apps = "django_celery_results", Apps()

    site = AdminSite("back_office")
    site.register(HeldLock, HeldLockAdmin)
    if shown:
        site.register(TaskResult)
    settings.ROOT_URLCONF = ModuleType("urls_with_another_admin")
    settings.ROOT_URLCONF.urlpatterns = [path("back/", site.urls), *urls.urlpatterns]
    with stores["default"].lock("settle", owner={"task_id": "c0ffee"}):
        page = client.get("/back/django_redlock/heldlock/default_3Asettle/change/").text
    assert "c0ffee" in page
    assert ('href="/back/django_celery_results/taskresult/?task_id=c0ffee"' in page) is shown


def test_task_links_to_flower(client, stores, operator, settings):
    """With Flower's address in the settings a task id is a link."""
    settings.REDLOCK_FLOWER_URL = "https://flower.example/"
    with stores["default"].lock("settle", owner={"task_id": "c0ffee/<1>"}):
        page = client.get(f"{LIST}default_3Asettle/change/").text
    assert '<a href="https://flower.example/task/c0ffee%2F%3C1%3E">c0ffee/&lt;1&gt;</a>' in page


@pytest.mark.parametrize("kind", sorted(MAKE))
def test_kinds(client, stores, operator, using, kind):
    """A lock of each kind is listed, filtered and released by force under its own kind."""
    shown = "mutex" if kind == "fair" else kind
    lock = MAKE[kind](stores[using], "x")
    lock.acquire()
    names = names_in(client.get(LIST, {"kind": shown}))
    assert names
    assert set(names) <= set(NAMES.get(kind, ["x"]))
    assert names_in(client.get(LIST, {"kind": "another"})) == []
    detail = client.get(f"{LIST}{quote(f'{using}:{names[0]}')}/change/")
    assert shown in detail.text
    for name in names:
        assert stores[using].force_release(name)
    assert not lock.owned()


@pytest.fixture
def permits(stores):
    """Three permits of a semaphore, held on two hosts."""
    hosts = ["here", "here", "elsewhere"]
    held = [stores["default"].semaphore("permits", limit=4, owner={"host": host, "since": 1.0}) for host in hosts]
    assert all(permit.acquire(False) for permit in held)
    return held


def test_several_holders_in_the_commands(permits, stores):
    """The table names one holder and counts the others, JSON lists them all, and filters look at each."""

    def found(*command):
        return [row["name"] for row in Done(*command, "--format", "json").json]

    assert " and 2 more " in Done("redlock_list").out
    [row] = Done("redlock_list", format="json").json
    assert sorted(each.partition(":")[0] for each in row["holders"]) == ["elsewhere", "here", "here"]
    assert [found("redlock_list", "--host", host) for host in ("here", "elsewhere")] == [["permits"]] * 2
    older = "redlock_release", "*", "--older-than", "1h", "--dry-run"  # each of its holders
    with stores["default"].semaphore("permits", limit=4):
        assert found(*older) == []
    assert found(*older) == ["permits"]


def test_several_holders_in_the_admin(client, stores, operator, permits):
    """The admin's list counts the holders and filters by each, and a forced release asks for the holder."""
    for host in "here", "elsewhere":
        assert names_in(client.get(LIST, {"host": host})) == ["permits"]
    page = client.get(LIST).text
    assert re.search(r">and 2 more · \w+", page)
    assert "elsewhere (1)" in page
    first, *others = holdings(asked(client, "default:permits"))
    assert len(others) == 2
    done = client.post(f"{LIST}release/", {"holding": first}, follow=True)
    held = stores["default"].describe("permits")
    assert [f"{digest}:default:permits" for digest in held.digests] == others
    now = re.escape(", ".join(map(str, held.holders)))
    assert re.fullmatch(rf"Lock permits was released\. It was held by [^,]*\. It is now held by {now}\.", *said(done))
    assert said(client.post(f"{LIST}release/", {}, follow=True)) == ["No holder was chosen: nothing was released."]


def test_page_of_several_holders(client, stores, operator, using):
    """The page names each holder, with how long it has held."""
    first, second = (stores[using].semaphore("permits", limit=2, owner=label) for label in ("one", "two"))
    with first, second:
        page = client.get(f"{LIST}{using}_3Apermits/change/").text
    table = page.split("All holders</h2>")[1].split("</table>")[0]
    assert sorted(re.findall(r"<td>[^<]* · (one|two)</td><td>\d\.\d s</td>", table)) == ["one", "two"]
