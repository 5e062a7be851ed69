"""The commands as processes."""

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
def start_run(redis_url, tmp_path, _foreground):
    """`start_run(*args)`: a `redlock_run` that runs beside the test. `before`: words in front of the command."""
    running = []

    def begin(*args, before=(), stdin=subprocess.DEVNULL, url=redis_url):
        command = [*before, sys.executable, MANAGE, "redlock_run", *args]
        environment = {**os.environ, "TESTPROJECT_REDIS": url, "TESTPROJECT_DATABASE": str(tmp_path / "db.sqlite3")}
        process = subprocess.Popen(
            command, env=environment, cwd=tmp_path, text=True, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session="setsid" not in before,
        )  # fmt: skip
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
