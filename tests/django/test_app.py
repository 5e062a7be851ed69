"""`django_redlock` in INSTALLED_APPS: the start of real processes."""

import io
import json
import os
import subprocess
import sys
import threading

import pytest
from django.core.management import call_command

from django_redlock.apps import is_serving, prepare
from django_redlock.backends.dummy import DummyBackend
from django_redlock.core.flow.scripts import all_scripts

SETUP = "import django; django.setup()"
COLLECT = ["pytest", "--collect-only", "-q", "--noconftest", "tests/core/test_errors.py"]


def run(url, *arguments):
    """Run a Python process of the test project, and return its output."""
    env = {**os.environ, "TESTPROJECT_REDIS": url, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def loaded(server):
    with server.client() as client:
        return client.script_exists(*[script.sha.decode() for script in all_scripts()])


@pytest.mark.parametrize(
    ("argv", "serving"),
    [
        (["manage.py", "migrate"], False),
        (["/srv/shop/manage.py", "test", "--parallel"], False),
        (["/lib/python3/site-packages/django/__main__.py", "shell"], False),
        (["manage.py"], False),
        (["/usr/bin/pytest", "tests"], False),
        (["/lib/python3/site-packages/mypy/__main__.py"], False),
        (["/usr/bin/celery", "-A", "shop", "inspect", "active"], False),
        (["-c"], False),
        ([], False),
        (["manage.py", "runserver", "8000"], True),
        (["manage.py", "db_worker"], True),
        (["/usr/bin/gunicorn", "shop.wsgi"], True),
        (["/lib/python3/site-packages/uvicorn/__main__.py", "shop.asgi"], True),
        (["/usr/bin/celery", "-A", "shop", "worker"], True),
        (["uwsgi"], True),
    ],
)
def test_servers_are_recognised(argv, serving):
    """Servers and workers are told apart from test runs, type checkers and commands."""
    assert is_serving(argv) == serving


@pytest.mark.django_db
@pytest.mark.parametrize("every_row", [False, True])
def test_dumpdata(every_row):
    """``dumpdata`` does not look for a table of live locks."""
    output = io.StringIO()
    call_command("dumpdata", "django_redlock", "auth.group", use_base_manager=every_row, stdout=output)
    assert json.loads(output.getvalue()) == []


def test_server_loads_the_scripts(own_redis):
    """A server process loads every script at its start, and leaves no connections or threads to its children."""
    server = own_redis()
    assert not any(loaded(server))
    program = """
import functools, sys, threading
import django
from django_redlock import apps
sys.argv = ["/usr/bin/gunicorn", "shop.wsgi"]
from testproject import settings
apps.prepare = functools.partial(apps.prepare, patience=20)  # the machine may be busy
settings.REDLOCK["default"]["OPTIONS"]["node_timeout"] = 10
settings.REDLOCK["timestamp"]["OPTIONS"] = {"node_timeout": 10}
del settings.REDLOCK["cache"]  # it uses the cache's own connections, which redis-py keeps apart after a fork
django.setup()
import redis
with redis.Redis.from_url(settings.REDIS_URL) as client:
    print(threading.active_count(), len(client.client_list()))
"""
    assert run(server.url, "-c", program).split() == ["1", "1"]  # this thread, and this client
    assert all(loaded(server))


@pytest.mark.parametrize("command", [["manage.py", "diffsettings"], ["-m", *COLLECT], ["-c", SETUP]])
def test_others_connect_to_no_redis(proxy, command):
    """A command, a test run and a script connect to no Redis before their first lock."""
    run(proxy.url, *command)
    assert proxy.accepted == 0


def test_no_server():
    """A process starts without a Redis."""
    program = f"import sys; sys.argv = ['gunicorn']; {SETUP}; print('started')"
    assert "started" in run("redis://127.0.0.1:1/0", "-c", program)


def test_bad_settings(settings, caplog):
    """A process starts with wrong settings, and the log says what is wrong."""
    settings.REDLOCK = {"default": {"BACKEND": "nowhere.Backend"}}
    prepare()
    assert "BACKEND 'nowhere.Backend' can't be imported" in caplog.text


def test_store_that_hangs(settings, own_redis):
    """A store that does not reply delays the start of a process for the given time at most."""
    server = own_redis()
    hanging = {"BACKEND": f"{__name__}.Hanging", "LOCATION": server.url}
    settings.REDLOCK = {"default": hanging}
    Hanging.answer.clear()
    try:
        prepare(patience=0.01)
        [thread] = [each for each in threading.enumerate() if each.name == "redlock-call"]
    finally:
        Hanging.answer.set()
    thread.join(20)
    assert not thread.is_alive()


class Hanging(DummyBackend):
    answer = threading.Event()

    def prepare(self):
        return self.answer.wait(20)
