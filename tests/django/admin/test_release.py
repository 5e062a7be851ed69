"""Force release in the admin, through Django's client, on a real Redis."""

import html
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from tests.support.databases import postgres_database, routed

LIST = "/admin/django_redlock/heldlock/"


def asked(client, *pks):
    """Return the confirmation page of the list's action."""
    return client.post(LIST, {"action": "force_release", "_selected_action": pks, "index": 0})


def holdings(page):
    return [html.unescape(value) for value in re.findall(r'name="holding" value="([^"]*)"', page.text)]


def sent(values):
    """Return the values of a form as a browser sends them: the HTML standard turns each line break into CR LF."""
    return [re.sub("\r\n|\r|\n", "\r\n", value) for value in values]


def said(response):
    return [str(message) for message in response.context["messages"]]


def test_asks_who_holds_it_and_releases_nothing(client, stores, operator):
    """The action of the list and the delete page of a lock ask the same question, for GET and POST."""
    delete = f"{LIST}default_3Astock/delete/"
    with stores["default"].lock("stock", owner="till 7") as held:
        for page in asked(client, "default:stock"), client.get(delete), client.post(delete, {"post": "yes"}):
            assert (len(holdings(page)), "till 7" in page.text) == (1, True)
        assert held.owned()


def test_whole_names(client, stores, operator):
    """The confirmation page shows names in full, because shortened names of two locks may be equal."""
    names = [f"invoice:2026-11:{region}-central:4711" for region in ("eu", "us")]
    with stores["default"].lock(names[0]), stores["default"].lock(names[1]):
        page = asked(client, *(f"default:{name}" for name in names)).text
    assert all(f">{name}<" in page for name in names)


def test_released_logged_and_lost(client, stores, operator):
    """After the confirmation the lock is free, its holder has lost it, and the log names user and holder."""
    lock = stores["default"].lock("stock", owner="till 7", on_lost="warn")
    lock.acquire()
    token = lock.token
    done = client.post(f"{LIST}release/", {"holding": holdings(asked(client, "default:stock"))}, follow=True)
    assert any("stock was released" in message for message in said(done))
    assert not lock.locked()
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.object_repr) == (operator, "default:stock", "stock")
    assert "till 7" in entry.change_message
    assert f"token {token[:6]}…" in entry.change_message
    assert token not in entry.change_message
    assert "Released by force" in client.get(f"{LIST}default_3Astock/change/").text
    with pytest.raises(Exception, match="lost"):
        lock.release()


NAMES = ["line\nbreak", "line\rbreak", "a%0Ab", "_0A", "snow ☃", '"&<>', "a/b?c#d%20e", "*?[x]", "a:b:c", " space "]


@pytest.mark.parametrize("name", NAMES)
def test_any_name(client, stores, operator, name):
    """From the list, a lock with any name can be opened and released by force."""
    lock = stores["default"].lock(name, on_lost="warn", owner="who has it")
    lock.acquire()
    listed = client.get(LIST).text
    link = html.unescape(re.search(r'href="([^"]+)" class="redlock-name"', listed)[1])
    assert "who has it" in client.get(link).text
    boxes = re.findall(r'name="_selected_action" value="([^"]*)"', listed)
    page = asked(client, *sent(map(html.unescape, boxes)))
    done = client.post(f"{LIST}release/", {"holding": sent(holdings(page))}, follow=True)
    assert any("was released" in message for message in said(done))
    assert not lock.locked()


@pytest.fixture
def postgres_alone(settings, postgres, unique, django_db_blocker):
    """All models are in a new PostgreSQL database."""
    with django_db_blocker.unblock(), postgres_database(unique, postgres, unique) as alias:
        settings.DATABASE_ROUTERS = [routed(alias)]
        call_command("migrate", database=alias, verbosity=0)
        yield


def test_nul_on_postgresql(client, stores, postgres_alone):
    """A lock with NUL in its name can be looked at and released, and is logged, on PostgreSQL, which stores no NUL."""
    client.force_login(User.objects.create_user("operator", is_staff=True, is_superuser=True))
    lock = stores["default"].lock("a\0b", on_lost="warn")
    lock.acquire()
    boxes = re.findall(r'name="_selected_action" value="([^"]*)"', client.get(LIST).text)
    client.post(f"{LIST}release/", {"holding": holdings(asked(client, *boxes))})
    assert not lock.locked()
    assert LogEntry.objects.get().object_repr == r"a\x00b"
    assert "Released by force" in client.get(f"{LIST}default_3Aa%00b/change/").text


def test_changed_hands_meanwhile(client, stores, operator):
    """If another holder gets the lock between question and answer, it keeps it and nothing is logged."""
    first, second = stores["default"].lock("stock"), stores["default"].lock("stock")
    first.acquire()
    page = asked(client, "default:stock")
    first.release()
    second.acquire()
    done = client.post(f"{LIST}release/", {"holding": holdings(page)}, follow=True)
    assert second.owned()
    assert any("new holder" in message for message in said(done))
    assert not LogEntry.objects.exists()
    second.release()


def test_free_meanwhile(client, stores, operator):
    """A lock that is free by then is not released, and a message says so."""
    with stores["default"].lock("stock"):
        page = asked(client, "default:stock")
    done = client.post(f"{LIST}release/", {"holding": holdings(page)}, follow=True)
    assert any("free already" in message for message in said(done))
    assert any("no holder" in message for message in said(client.get(asked(client, "default:stock")["Location"])))


@pytest.mark.parametrize(
    "holding", ["", ":", "x", "default:stock", ":default:stock", "00:default:stock", "00:nowhere:stock"]
)
def test_forged_forms_release_nothing(client, stores, operator, holding):
    """A form without the digest of the current holding releases nothing."""
    with stores["default"].lock("stock") as held:
        assert client.post(f"{LIST}release/", {"holding": holding}).status_code == 302
        assert held.owned()


def test_store_down(client, one_down, operator):
    """A store that is not reachable is an error message, and locks of others are released."""
    lock = one_down["default"].lock("stock")
    lock.acquire()
    page = asked(client, "broken:x", "default:stock")
    assert holdings(page)
    assert "Lock x: the store is unavailable" in page.text
    done = client.post(f"{LIST}release/", {"holding": ["00:broken:x", *holdings(page)]}, follow=True)
    assert any("x may not have been released" in message for message in said(done))
    assert not lock.locked()


@pytest.mark.parametrize("codenames", [(), ("view_heldlock",)])
def test_needs_the_permission(client, stores, user_with, codenames):
    user_with(*codenames)
    with stores["default"].lock("stock") as held:
        form = {"holding": f"{stores['default'].describe('stock').digest}:default:stock", "post": "yes"}
        for ask, path in (client.post, "release/"), (client.get, "default_3Astock/delete/"):
            assert ask(LIST + path, form).status_code == 403
        assert client.post(f"{LIST}default_3Astock/delete/", form).status_code == 403
        assert not holdings(asked(client, "default:stock"))
        assert held.owned()


def test_several_at_once(client, stores, operator):
    """All selected locks are released, of any store."""
    one, two, three = stores["default"].lock("one"), stores["memory"].lock("two"), stores["default"].lock("three")
    assert all(lock.acquire() for lock in (one, two, three))
    page = asked(client, "default:one", "memory:two")
    client.post(f"{LIST}release/", {"holding": holdings(page)})
    assert [lock.locked() for lock in (one, two, three)] == [False, False, True]
    assert LogEntry.objects.count() == 2
    three.release()


def test_only_the_form_releases(client, stores, operator):
    """A GET, a POST without the CSRF token, and Django's own delete action, which sends no digest, release nothing."""
    stranger = Client(enforce_csrf_checks=True)
    stranger.force_login(operator)
    with stores["default"].lock("stock") as held:
        form = {"holding": holdings(asked(client, "default:stock"))}
        client.get(f"{LIST}release/", form)
        assert stranger.post(f"{LIST}release/", form).status_code == 403
        assert "delete_selected" not in client.get(LIST).text
        client.post(LIST, {"action": "delete_selected", "_selected_action": "default:stock", "post": "yes"})
        assert held.owned()
