"""A queue in a database file, and workers that take from it."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("django_tasks_db")

from django.conf import settings as configured
from django.contrib.admin import site
from django.db import connections
from django.test import override_settings

from django_redlock import locks
from testproject.processes import Child
from tests.support.databases import sqlite_file
from tests.support.forked import Forked
from tests.support.locks import memory_entry, redis_entry
from tests.support.service import poll

ROOT = Path(__file__).parents[2]


class Router:
    """The queue is in a database of its own."""

    def db_for_read(self, model, **_hints):
        return "tasks" if model._meta.app_label == "django_tasks_database" else None

    db_for_write = db_for_read


@pytest.fixture(scope="package")
def records(tmp_path_factory):
    """Where bodies write what they do."""
    folder = tmp_path_factory.mktemp("tasks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKS_RECORDS", str(folder))
        yield folder


@pytest.fixture(scope="package")
def queue_file(tmp_path_factory):
    return tmp_path_factory.mktemp("queue") / "queue.sqlite3"


@pytest.fixture(autouse=True)
def store(redis_url, settings):
    """The lock store of the test and its workers."""
    down = redis_entry("redis://127.0.0.1:1/0")
    settings.REDLOCK = {"default": redis_entry(redis_url), "down": down, "memory": memory_entry()}
    return redis_url


@pytest.fixture
def app(records):
    """The module with the tasks."""
    from tests.tasks import app

    return app


@pytest.fixture
def framework(app):
    """The package with the backends: ``django.tasks`` or ``django_tasks``."""
    return "django.tasks" if type(app.plain).__mro__[2].__module__ == "django.tasks.base" else "django_tasks"


@pytest.fixture
def immediate(framework, settings):
    """Tasks run in ``enqueue()``."""
    settings.TASKS = {"default": {"BACKEND": f"{framework}.backends.immediate.ImmediateBackend"}}


@pytest.fixture
def dummy(framework, settings):
    """Tasks are kept in a list."""
    settings.TASKS = {"default": {"BACKEND": f"{framework}.backends.dummy.DummyBackend"}}


@pytest.fixture
def database(app, queue_file, settings, django_db_blocker):
    """The alias of the database with the queue. The queue is empty."""
    apps = override_settings(INSTALLED_APPS=[*configured.INSTALLED_APPS, "django_tasks_db"])
    with django_db_blocker.unblock(), sqlite_file("tasks", queue_file) as alias, apps:
        from django_tasks_db.models import DBTaskResult

        settings.DATABASE_ROUTERS = [Router()]
        settings.TASKS = {
            name: {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default", "other"]}
            for name in ("default", "second")
        }
        if DBTaskResult._meta.db_table not in connections[alias].introspection.table_names():
            with connections[alias].schema_editor() as editor:
                editor.create_model(DBTaskResult)
        DBTaskResult.objects.all().delete()
        yield alias
        if site.is_registered(DBTaskResult):  # the admin of the app registers it, and the app goes
            site.unregister(DBTaskResult)


@pytest.fixture
def start_worker(database, records, queue_file, store, tmp_path):
    """`start_worker()`: a context with a process that takes from the queue."""

    @contextlib.contextmanager
    def start():
        words = ["-m", "django", "db_worker", "--interval", "0.05", "--no-startup-delay", "--no-reload"]
        env = {
            "DJANGO_SETTINGS_MODULE": "tests.tasks.settings",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "TASKS_DATABASE": str(queue_file),
            "TESTPROJECT_REDIS": store,
        }
        child = Child([sys.executable, *words], output=tmp_path / "worker.log", env=env, start=Forked)
        try:
            yield child
        finally:
            child.kill()
            print(child.log())  # pytest shows it if the test fails

    return start


@pytest.fixture
def events(records, unique):
    """`events("start")`: the processes that wrote this event. `events.go()`: bodies may end."""

    def events(kind, number=0):
        def found():
            file = records / f"{unique}.events"
            lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
            return [int(pid) for event, pid in lines if event == kind]

        poll(lambda: len(found()) >= number, timeout=60, what=f"{number} times {kind}")
        return found()

    events.go = (records / f"{unique}.go").touch
    return events


@pytest.fixture
def held():
    """`held(name)`: the state and the task id of the record, or `None`. Both are `None` while a record lapses."""

    def held(name):
        info = locks["default"].describe(name)
        return info and (info.owner.extra.get("state"), info.owner.extra.get("task_id"))

    return held
