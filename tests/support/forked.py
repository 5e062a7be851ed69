"""Starts Python programs as forks of a process that has imported the libraries which they use.

Imports of Celery, Django and redis-py are most of the processor time of a worker that runs one task. The package itself
is not imported in advance, so each program imports it and registers its fork handlers as usual. Each program is the
leader of its own session, has its own environment, and ends as an interpreter does.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import gc
import importlib
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
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
MAIN = "import sys; from tests.support.forked import main; main(int(sys.argv[1]))"
MOST_FILES = 10  # that a program gets
ABOVE = 500  # the numbers of files that a test has
NUMBER = struct.Struct("i")  # on the pipe of a program: its process id, then its exit status


class Forked:
    """A Python program in a fork. It has the members of `subprocess.Popen` that `Child` uses."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: Any,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        **_options: Any,
    ) -> None:
        self.args = command
        self.returncode: int | None = None
        self._pipe, theirs = os.pipe()
        try:
            _template().start(list(command), dict(env), [theirs, stdout.fileno(), *pass_fds])
        finally:
            os.close(theirs)
        number = self._read(60)
        assert number, f"{command} was not started"
        self.pid = number

    def poll(self) -> int | None:
        """Return the exit code, or `None` while the program runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the program. Returns its exit code. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            status = self._read(timeout)
            assert status is not None, "the process that forks has ended"
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._pipe)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _read(self, timeout: float | None) -> int | None:
        if not select.select([self._pipe], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        data = os.read(self._pipe, NUMBER.size)
        return NUMBER.unpack(data)[0] if data else None


class Template:
    """The process that forks. It ends with this process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        with theirs:
            command = [sys.executable, "-c", MAIN, str(theirs.fileno())]
            fds = [theirs.fileno()]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True)
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)

    def start(self, command: list[str], env: dict[str, str], fds: list[int]) -> None:
        with self._mutex:
            socket.send_fds(self._socket, [pickle.dumps((command, env, fds[2:]))], fds)


@functools.cache
def _template() -> Template:
    return Template()


def main(fd: int) -> None:
    """The entry point of the process that forks, and of its forks."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=fd) as requests:
        command = _serve(requests)
    if command:
        _run(command)


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request until the socket is closed. Returns the command in a fork, and nothing in the parent."""
    pipes: dict[int, int] = {}
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            for pid in [*pipes]:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    with contextlib.suppress(BrokenPipeError):
                        os.write(pipes[pid], NUMBER.pack(status))
                    os.close(pipes.pop(pid))
        if requests in ready:
            data, fds, _, _ = socket.recv_fds(requests, 1 << 20, MOST_FILES)
            if not data:
                return []
            pipe, output, *passed = fds
            if pid := os.fork():
                for each in (output, *passed):
                    os.close(each)
                pipes[pid] = pipe
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.write(pipe, NUMBER.pack(os.getpid()))
            for each in (output, ended, wake, pipe, *pipes.values()):
                os.close(each)
            command, env, numbers = pickle.loads(data)  # noqa: S301  (the test's own)
            requests.close()
            _renumber(passed, numbers)
            os.environ.clear()
            os.environ.update(env)
            return command


def _renumber(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the files these numbers."""
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, ABOVE) for each in files]  # away from the numbers
    for each in files:
        os.close(each)
    for each, number in zip(moved, numbers, strict=True):
        os.dup2(each, number)
        os.close(each)


def _run(command: list[str]) -> None:
    """Do as `python -m ...` or `python -c ...` does."""
    _python, option, program, *arguments = command
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [each for each in added if each and each not in sys.path]
    sys.argv = [option, *arguments]
    if option == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(program, {"__name__": "__main__"})  # noqa: S102  (the test's own)
