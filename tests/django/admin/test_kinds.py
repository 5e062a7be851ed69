"""Each kind of lock in the admin's list."""

import re
from types import ModuleType

import pytest
from django.apps.registry import Apps
from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote
from django.db import models
from django.urls import path

from django_redlock.admin import HeldLockAdmin
from django_redlock.models import HeldLock, make_pk
from django_redlock.testing.conformance.shared_handles import MAKE
from tests.django import urls
from tests.django.admin.test_list import LIST, names_in

NAMES = {"striped": ["{x}#0", "{x}#1", "{x}#2"], "multilock": ["x", "x:2"]}


def facts(client, name):
    """Return the lines of a lock's page, by label."""
    page = client.get(f"{LIST}{quote(make_pk('default', name))}/change/").content.decode()
    found = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', page)
    return {label: re.sub("<[^>]*>", "", value) for label, value in found}, page


def test_facts(client, stores, operator):
    """The page and the list show a semaphore's limit and max_hold."""
    backend = stores["default"]
    with backend.semaphore("exports", limit=3), backend.lock("report", max_hold=90):
        exports, _ = facts(client, "exports")
        known, _ = facts(client, "report")
        row = backend.describe("exports")
    assert exports["Limit"] == "3"
    assert known["Longest hold allowed"] == "1 min 30 s"
    assert row.owner.extra == {"limit": 3}


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
        page = client.get("/back/django_redlock/heldlock/default_3Asettle/change/").content.decode()
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
    assert shown in detail.content.decode()
    for name in names:
        assert stores[using].force_release(name)
    assert not lock.owned()
