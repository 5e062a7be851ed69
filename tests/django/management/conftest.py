"""The commands as processes, with few settings: a process starts twice as fast without the apps of the test project."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from django_redlock.backends.redis import RedisBackend

MANAGE = Path(__file__).parents[3] / "manage.py"


@pytest.fixture
def backend(redis_url):
    """The backend of the processes."""
    backend = RedisBackend(redis_url, node_timeout=5)
    yield backend
    backend.close()


@pytest.fixture
def _foreground():
    """Restore the default handling of SIGINT and SIGHUP, which background commands of a shell ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGHUP, before[1])


@pytest.fixture
def environment(redis_url, monkeypatch):
    monkeypatch.setenv("TESTPROJECT_REDIS", redis_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.django.management.settings")


@pytest.fixture
def start_run(environment, tmp_path, _foreground):
    """`start_run(*args)`: a `redlock_run` that runs beside the test. `before`: words in front of the command."""
    with contextlib.ExitStack() as ends:

        def begin(*args, before=(), stdin=subprocess.DEVNULL, **environment):
            command = [*before, sys.executable, MANAGE, "redlock_run", *args]
            process = subprocess.Popen(
                command, env={**os.environ, **environment}, cwd=tmp_path, text=True, stdin=stdin,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session="setsid" not in before,
            )  # fmt: skip
            ends.enter_context(process)
            ends.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def begin(start_run):
    """`begin(*options, code)`: a `redlock_run` of a Python program that has said that it is ready."""

    def start(*options, code, command=(sys.executable, "-c"), **more):
        process = start_run(*options, "job", "--", *command, code, **more)
        assert process.stdout.readline() == "ready\n"
        return process

    return start


@pytest.fixture
def run(start_run):
    """`run(*args)`: exit code, stdout and stderr of a `redlock_run` that has ended."""

    def to_the_end(*args, **options):
        process = start_run(*args, **options)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    return to_the_end
