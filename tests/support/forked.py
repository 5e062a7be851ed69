"""Starts Python programs as forks of a process that has imported the libraries which they use.

Imports of Celery, Django and redis-py are most of the processor time of a worker that runs one task. The package itself
is not imported in advance, so each program imports it and registers its fork handlers as usual. Each program is the
leader of its own session, has its own environment, and ends as an interpreter does.
"""

import atexit
import fcntl
import multiprocessing
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any

LIBRARIES = (
    "celery.apps.worker",
    "celery.backends.redis",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.solo",
    "celery.concurrency.thread",
    "celery.contrib.django.task",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "django.contrib.messages.middleware",
    "django.contrib.sessions.middleware",
    "django.core.management",
    "django.db.backends.sqlite3.base",
    "django.db.models",
    "django.http",
    "django.middleware.csrf",
    "django.template",
    "django.test",
    "django.urls",
    "kombu.transport.redis",
    "redis.asyncio",
)
ABOVE = 500  # the numbers of files that a test has

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(list(LIBRARIES))


class Forked:
    """A Python program in a fork. It has the members of `subprocess.Popen` that `Child` uses."""

    def __init__(
        self, command: Sequence[str], *, stdout: Any, env: Mapping[str, str], pass_fds: Sequence[int] = (), **_: Any
    ) -> None:
        self.args = command
        files = [File(number) for number in (stdout.fileno(), *pass_fds)]
        begun, theirs = _server.Pipe(duplex=False)
        self._process = _server.Process(target=_run, args=(list(command), dict(env), files, theirs))
        self._process.start()
        theirs.close()
        begun.recv()
        begun.close()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class File:
    """An open file, which has the same number in the program."""

    def __init__(self, number: int, passed: Any = None) -> None:
        self.number = number
        self.passed = passed

    def __reduce__(self) -> Any:
        return File, (self.number, DupFd(self.number))


def _moved(file: File) -> int:
    """Move the file out of the way, and return its number."""
    here = file.passed.detach()
    moved = fcntl.fcntl(here, fcntl.F_DUPFD, ABOVE)
    os.close(here)
    return moved


def _run(command: list[str], env: dict[str, str], files: list[File], begun: Connection) -> None:
    """Do as `python -m ...` or `python -c ...` does."""
    os.setsid()
    output, *numbered = map(_moved, files)
    for number in (1, 2):
        os.dup2(output, number)
    os.environ.clear()
    os.environ.update(env)
    begun.send(None)
    begun.close()
    for moved, each in zip(numbered, files[1:], strict=True):
        os.dup2(moved, each.number)
    for moved in (output, *numbered):
        os.close(moved)
    _python, option, program, *arguments = command
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [each for each in added if each and each not in sys.path]
    sys.argv = [option, *arguments]
    try:
        if option == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(program, {"__name__": "__main__"})  # noqa: S102  (the test's own)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
