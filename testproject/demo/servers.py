"""The servers of the demo: Redis, a database, a Celery worker, a web server. All are stopped when the block ends."""

from __future__ import annotations

import contextlib
import http.client
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import django
from django.core.management import call_command

from testproject.processes import Child, wait_until
from testproject.redis_server import RedisServer, free_port

START = 120.0  # seconds within which a server must be ready
NODES = 3  # independent Redis servers for the quorum
LOGIN = "admin"  # user name and password


@contextlib.contextmanager
def running(nodes: int = 0) -> Iterator[tuple[str, int]]:
    """Start all servers. Yields the address (host, port) of the shop. Changes the environment of this process.

    With `nodes`, a majority of that number of Redis servers grants the shop's locks. Redis servers that the environment
    names are used instead of new servers.
    """
    with contextlib.ExitStack() as ends:
        directory = ends.enter_context(tempfile.TemporaryDirectory(prefix="redlock-demo-"))
        os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
        os.environ["TESTPROJECT_DATABASE"] = f"{directory}/shop.sqlite3"
        for variable, count in (("TESTPROJECT_REDIS", 1), ("TESTPROJECT_NODES", nodes or NODES)):
            os.environ[variable] = os.environ.get(variable) or " ".join(
                ends.enter_context(RedisServer()).url for _ in range(count)
            )
        if nodes:
            os.environ["TESTPROJECT_QUORUM"] = "1"
        prepare()
        port = int(os.environ.get("TESTPROJECT_PORT") or free_port(ends))
        with worker(Path(directory)) as celery, web(Path(directory), port) as gunicorn:
            wait_until(worker_answers, child=celery, timeout=START, what="the Celery worker")
            wait_until(lambda: web_answers(port), child=gunicorn, timeout=START, what="the web server")
            yield "127.0.0.1", port


def prepare() -> None:
    """Migrate, create an administrator, and end the quarantine of the new nodes, which can hold no lock yet."""
    django.setup()
    from django.contrib.auth import get_user_model

    from django_redlock import locks

    locks["redlock"].arm()
    if os.environ.get("TESTPROJECT_QUORUM"):
        locks["default"].arm()
    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser(LOGIN, password=LOGIN)


@contextlib.contextmanager
def stopped_at_the_end(child: Child) -> Iterator[Child]:
    """Yield the child, and stop it at the end of the block. An error in the block gets the end of the child's log."""
    try:
        yield child
    except Exception as error:
        error.add_note(f"\n{child.output.name} ends with:\n{child.log()}")
        raise
    finally:
        child.stop()


def worker(directory: Path) -> contextlib.AbstractContextManager[Child]:
    """Returns a context manager that runs a Celery worker with eight processes."""
    options = ["--concurrency", "8", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    command = [sys.executable, "-m", "celery", "-A", "testproject.celery", "worker", *options]
    return stopped_at_the_end(Child(command, output=directory / "worker.log"))


def web(directory: Path, port: int) -> contextlib.AbstractContextManager[Child]:
    """Returns a context manager that runs Gunicorn in two processes, so that a local lock can't help."""
    host = os.environ.get("TESTPROJECT_HOST", "127.0.0.1")
    options = ["--bind", f"{host}:{port}", "--workers", "2", "--threads", "32", "--worker-tmp-dir", str(directory)]
    command = [sys.executable, "-m", "gunicorn", "testproject.wsgi", *options]
    command += ["--graceful-timeout", "3", "--no-control-socket"]
    return stopped_at_the_end(Child(command, output=directory / "web.log"))


def worker_answers() -> bool:
    """Whether a worker answers."""
    from testproject.celery import app

    return bool(app.control.ping(timeout=0.3))


def web_answers(port: int) -> bool:
    """Whether the admin's login page is served."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/admin/login/")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
