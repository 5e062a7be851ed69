"""What the shop runs on: Redis, a database, a Celery worker, a web server; all real, all gone when the block ends."""

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

START = 60.0  # seconds that a server may take to come up
NODES = 3  # servers for the locks that a majority decides about
LOGIN = "admin"  # name and password


@contextlib.contextmanager
def running(nodes: int = 0) -> Iterator[tuple[str, int]]:
    """Start everything; the address (host, port) of the shop. The environment is changed for us and our children.

    With `nodes`, the shop's locks are granted by a majority of so many servers. Redis servers that the environment
    names are used instead of new ones.
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
    """Migrate, make somebody who may see everything, and let the new nodes vote: no lock can be held there yet."""
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
    """The child, until the block ends; an error in the block says what the child wrote last."""
    try:
        yield child
    except Exception as error:
        error.add_note(f"\n{child.output.name} ends with:\n{child.log()}")
        raise
    finally:
        child.stop()


def worker(directory: Path) -> contextlib.AbstractContextManager[Child]:
    """A Celery worker with eight processes."""
    options = ["--concurrency", "8", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
    command = [sys.executable, "-m", "celery", "-A", "testproject.celery", "worker", *options]
    return stopped_at_the_end(Child(command, output=directory / "worker.log"))


def web(directory: Path, port: int) -> contextlib.AbstractContextManager[Child]:
    """Gunicorn with two processes, so that no lock inside a process could help, and a thread for each of the crowd."""
    host = os.environ.get("TESTPROJECT_HOST", "127.0.0.1")
    options = ["--bind", f"{host}:{port}", "--workers", "2", "--threads", "32", "--worker-tmp-dir", str(directory)]
    command = [sys.executable, "-m", "gunicorn", "testproject.wsgi", *options]
    command += ["--graceful-timeout", "3", "--no-control-socket"]
    return stopped_at_the_end(Child(command, output=directory / "web.log"))


def worker_answers() -> bool:
    """Whether a worker is there."""
    from testproject.celery import app

    return bool(app.control.ping(timeout=0.3))


def web_answers(port: int) -> bool:
    """Whether the admin's login page can be seen."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/admin/login/")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
