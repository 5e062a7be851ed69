"""Locks with several holders in listings and in force releases."""

import re

import pytest

from tests.django.admin.test_list import LIST, names_in
from tests.django.admin.test_release import asked, holdings, said
from tests.django.management.command_result import Done


@pytest.fixture
def permits(stores):
    """Three permits of a semaphore, held on two hosts."""
    hosts = ["here", "here", "elsewhere"]
    held = [stores["default"].semaphore("permits", limit=4, owner={"host": host, "since": 1.0}) for host in hosts]
    assert all(permit.acquire(False) for permit in held)
    return held


def test_list(permits):
    """The table names one holder and counts the others, and JSON lists them all."""
    assert " and 2 more " in Done("redlock_list").out
    [row] = Done("redlock_list", format="json").json
    assert sorted(each.partition(":")[0] for each in row["holders"]) == ["elsewhere", "here", "here"]


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_list_filters(permits, host):
    """--host matches any of the holders."""
    assert [row["name"] for row in Done("redlock_list", "--host", host, "--format", "json").json] == ["permits"]


def test_release_older_than(permits, stores):
    """--older-than selects a lock only if each of its holders is older."""

    def found():
        return [row["name"] for row in Done("redlock_release", "*", older_than=3600, dry_run=True, format="json").json]

    with stores["default"].semaphore("permits", limit=4):
        assert found() == []
    assert found() == ["permits"]


def test_admin(client, stores, operator, permits):
    """The admin's list counts the holders and filters by each, and a forced release asks for the holder."""
    for host in "here", "elsewhere":
        assert names_in(client.get(LIST, {"host": host})) == ["permits"]
    page = client.get(LIST).content.decode()
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
