"""The documentation's admin of a model with ``fence_required``, on real databases."""

import sys
from types import ModuleType

import pytest
from django.apps import apps
from django.contrib.admin import AdminSite, sites
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client
from django.urls import path

from tests.docs.pages import DOCS
from tests.fencing import models
from tests.fencing.models import Account
from tests.support.databases import routed
from tests.support.service import poll

EXAMPLE = DOCS / "examples" / "account_admin.py"


@pytest.fixture
def account(db, settings):
    """A row in a database that has the tables of the admin, too."""
    settings.DATABASE_ROUTERS = [routed(db)]
    with connections[db].schema_editor() as editor:
        for label in ("contenttypes", "auth", "sessions", "admin"):
            for model in apps.get_app_config(label).get_models():
                editor.create_model(model)
    return Account.objects.create(number=1, balance=100)


@pytest.fixture
def browser(account, backend, settings, monkeypatch):
    """`browser(patience)`: a superuser's client of the example, whose requests wait `patience` seconds for a lock."""

    def log_in(patience):
        urls, site = ModuleType("urls"), AdminSite()
        shop = ModuleType("shop.models")
        vars(shop).update(vars(models))
        monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
        monkeypatch.setitem(sys.modules, "shop.models", shop)
        monkeypatch.setattr(sites, "site", site)  # the one that `admin.register` uses
        code = EXAMPLE.read_text().replace("blocking_timeout=5", f"blocking_timeout={patience}")
        exec(compile(code, EXAMPLE, "exec"), {"__name__": "shop.admin"})  # noqa: S102  (the documentation's own code)
        vars(urls)["urlpatterns"] = [path("admin/", site.urls)]
        settings.ROOT_URLCONF = urls
        client = Client(raise_request_exception=False)
        client.force_login(get_user_model().objects.create_superuser("admin"))
        return client

    return log_in


def url(account, view):
    return f"/admin/fencing/account/{account.pk}/{view}/"


def balance_and_number():
    return Account.objects.values_list("balance", "number").get()


@pytest.mark.parametrize(
    ("db", "atomic"), [("sqlite", False), ("postgres", False), ("postgres", True)], indirect=["db"]
)  # with ATOMIC_REQUESTS, SQLite refuses a write after another's
def test_admin_keeps_what_the_holder_wrote(account, browser, backend, in_thread, atomic):
    """A change that waits for the lock keeps what the holder writes meanwhile, and stores its own fields.

    So it does within the transaction of ATOMIC_REQUESTS, which begins before the lock is acquired.
    """
    connections.settings[account._state.db]["ATOMIC_REQUESTS"] = atomic
    client, name = browser(patience=60), f"account:{account.pk}"
    with backend.lock(name, fencing=True) as held:
        row = Account.objects.fenced(held).claim(pk=account.pk)
        answer = in_thread(lambda: client.post(url(account, "change"), {"number": 2, "balance": 100}))
        poll(lambda: backend.held(name)[0].waiters == 1, timeout=60, what="the admin")
        row.balance -= 40
        row.save(lock=held)
    assert answer.result(60).status_code == 302
    assert balance_and_number() == (60, 2)


@pytest.mark.parametrize(("view", "form"), [("change", {"number": 2}), ("delete", {"post": "yes"})])
def test_admin_says_who_holds_the_lock(account, browser, backend, view, form):
    """A change or deletion whose lock is held shows a message and leaves the row as it is."""
    client = browser(patience=0.05)
    with backend.lock(f"account:{account.pk}", fencing=True):
        response = client.post(url(account, view), form, follow=True)
    assert response.status_code == 200
    assert "Nothing was saved" in response.text
    assert "is held by" in response.text
    assert balance_and_number() == (100, 1)


def test_admin_adds_and_deletes(account, browser):
    """New rows are added without a lock, and a row is deleted under its lock."""
    client = browser(patience=60)
    assert client.post("/admin/fencing/account/add/", {"number": 7}).status_code == 302
    assert client.post(url(account, "delete"), {"post": "yes"}).status_code == 302
    assert list(Account.objects.values_list("number", flat=True)) == [7]
    assert client.get(url(account, "history"), follow=True).status_code == 200
