"""Fenced rows in a database of each kind, and locks in a real Redis."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.apps import apps
from django.db import connections

from django_redlock import locks
from tests.fencing import settings as ours
from tests.support.databases import postgres_database, sqlite_file
from tests.support.locks import redis_entry


@pytest.fixture
def app(settings):
    """The app of these models, installed."""
    settings.INSTALLED_APPS = ours.INSTALLED_APPS
    return apps.get_app_config("fencing")


@pytest.fixture(params=["sqlite", "postgres"])
def db(request, app, unique, tmp_path, django_db_blocker):
    """The alias of a database of that kind, with the tables of the app."""
    with django_db_blocker.unblock():
        if request.param == "sqlite":
            made = sqlite_file(unique, tmp_path / "db.sqlite3")
        else:
            made = postgres_database(unique, request.getfixturevalue("postgres"), unique)
        with made as alias:
            with connections[alias].schema_editor() as editor:
                for model in app.get_models():
                    if not model._meta.proxy:
                        editor.create_model(model)
            yield alias


@pytest.fixture
def backend(settings, redis_url):
    """`locks["default"]`, on a real Redis."""
    settings.REDLOCK = {"default": redis_entry(redis_url)}
    yield locks["default"]
    locks.reset()


@pytest.fixture
def held(backend):
    """`held()`: a new handle that has acquired the lock of the rows. Earlier handles have lost the lock."""

    def take():
        backend.force_release("rows")
        lock = backend.lock("rows", fencing=True, auto_renew=False, ttl=60)
        assert lock.acquire(blocking=False)
        return lock

    yield take
    backend.force_release("rows")


@pytest.fixture
def first(held):
    """The holder before `second`."""
    return held()


@pytest.fixture
def second(held, first):
    """The holder after `first`, which has lost the lock and does not know."""
    return held()


@pytest.fixture
def in_thread(db):
    """`in_thread(function)`: the future of a function that runs over a connection of its own."""

    def run(function):
        try:
            return function()
        finally:
            connections[db].close()

    with ThreadPoolExecutor(1) as pool:
        yield lambda function: pool.submit(run, function)
