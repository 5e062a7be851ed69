"""Views with `@idempotent` on each store: Redis, memory, SQLite and PostgreSQL."""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.http import HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from django_redlock.idempotency.models import StoredAnswer
from tests.idempotency.models import Charge
from tests.support.databases import mariadb_database, postgres_database, sqlite_file
from tests.support.locks import redis_entry

ALICE = SimpleNamespace(is_authenticated=True, pk=1)
BOB = SimpleNamespace(is_authenticated=True, pk=2)


@pytest.fixture
def stores(stores, settings):
    """The stores, and `broken`, which is not reachable."""
    settings.REDLOCK = {**settings.REDLOCK, "broken": redis_entry("redis://127.0.0.1:1/0")}
    return stores


def new_database(kind, request, unique, tmp_path):
    """A database of that kind with the tables of these tests."""
    if kind == "sqlite":
        return sqlite_file(unique, tmp_path / "db.sqlite3")
    make = {"postgres": postgres_database, "mariadb": mariadb_database}[kind]
    return make(unique, request.getfixturevalue(kind), unique)


def create_tables(alias):
    with connections[alias].schema_editor() as editor:
        editor.create_model(StoredAnswer)
        editor.create_model(Charge)


@pytest.fixture
def new_store(request, stores, unique, tmp_path, django_db_blocker):
    """`new_store("sqlite")`: the options of `idempotent()` for that store."""
    with contextlib.ExitStack() as stack:

        def make(kind):
            if kind in ("default", "memory"):
                return {"using": kind}
            stack.enter_context(django_db_blocker.unblock())
            alias = stack.enter_context(new_database(kind, request, unique, tmp_path))
            create_tables(alias)
            return {"database": alias}

        yield make


@pytest.fixture(params=["default", "memory", "sqlite"])
def options(request, new_store):
    """The options of `idempotent()` for each store in turn."""
    return new_store(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, new_store):
    """The alias of each kind of database in turn."""
    return new_store(request.param)["database"]


@pytest.fixture
def atomic_requests(new_store):
    """The alias of a database with ATOMIC_REQUESTS."""
    alias = new_store("sqlite")["database"]
    connections[alias].settings_dict["ATOMIC_REQUESTS"] = True
    return alias


@pytest.fixture
def pool():
    """Threads for requests at the same time."""
    with ThreadPoolExecutor(4) as threads:
        yield threads


def _ask(factory, body, key, user, method, path, extra):
    headers = {"Idempotency-Key": key} if key else {}
    request = factory.generic(method, path, json.dumps(body), "application/json", headers=headers, **extra)
    request.user = user
    return request


def ask(view, body=None, *, key='"k1"', user=ALICE, method="POST", path="/pay", **extra):
    """Send one request to a view, and return the response."""
    return view(_ask(RequestFactory(), body, key, user, method, path, extra))


async def aask(view, body=None, *, key='"k1"', user=ALICE, method="POST", path="/pay", **extra):
    """Send one request to an async view, and return the response."""
    return await view(_ask(AsyncRequestFactory(), body, key, user, method, path, extra))


def as_django(view):
    """Return the view as Django's handler calls it."""
    return BaseHandler().make_view_atomic(view)


def code(response):
    """Return status and problem code of a response; the code is empty for other responses."""
    if response.headers.get("Content-Type") != "application/problem+json":
        return response.status_code, ""
    problem = json.loads(response.content)
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["detail"]
    return response.status_code, problem["code"]


def replayed(response):
    """Return whether a response is a stored one."""
    return response.headers.get("Idempotent-Replayed") == "true"


class Paused:
    """A view that sets `entered` in its first call, and waits for `go`."""

    def __init__(self):
        self.entered, self.go, self.calls = threading.Event(), threading.Event(), 0

    def __call__(self, _request):
        self.calls += 1
        self.entered.set()
        assert self.go.wait(60)
        return HttpResponse(b"done")


def send(view, **more):
    """Call `ask` in a thread, and close its database connections."""
    try:
        return ask(view, **more)
    finally:
        connections.close_all()
