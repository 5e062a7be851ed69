"""What every server here has in common that is not a redis-server (that one is `testproject.redis_server`)."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from testproject.processes import Child, wait_until
from testproject.redis_server import RedisServer

START_TIMEOUT = 30


def poll(ready: Callable[[], bool], *, timeout: float, what: str) -> None:
    """Ask `ready` every 10 ms until it says yes; `TimeoutError` naming `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s in vain for: {what}")
        time.sleep(0.01)


def find(binary: str, *, package: str) -> str:
    """The program's path; `FileNotFoundError` says which Debian package has it."""
    if path := shutil.which(binary):
        return path
    raise FileNotFoundError(f"{binary} not found (Debian and Ubuntu: apt install {package})")


def revive(server: RedisServer | Service) -> None:
    """Let it run, whether it was paused, stopped or killed."""
    try:
        server.resume()
    except RuntimeError:  # it is not running
        server.start()


class Service:
    """One server process with a directory of its own. A subclass gives `command()` and `ready()`."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__.lower()}-"))
        self._child: Child | None = None

    def command(self) -> Sequence[str]:
        """The command line; `FileNotFoundError` when the program is not installed."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether it serves."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """What is added to the environment."""
        return {}

    @property
    def pid(self) -> int:
        """The process id of the running server, which is also its process group."""
        return self._running.pid

    @property
    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError(f"{type(self).__name__} is not running")
        return self._child

    def start(self) -> Self:
        """Start it, on the same ports and data as before, and wait until it serves."""
        if self._child is not None:
            raise RuntimeError(f"{type(self).__name__} is running already")
        child = Child(self.command(), output=self.dir / "log", env=self.environment())
        wait_until(self.ready, child=child, timeout=START_TIMEOUT, what=type(self).__name__)
        self._child = child
        return self

    def stop(self) -> None:
        """End it in order; nothing happens when it is not running."""
        if self._child is not None:
            self.resume()
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """`kill -9`, the whole process group. `start()` brings it back with what was on disk."""
        self._running.kill()
        self._child = None

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nobody answers."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            return self if self._child else self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        if self._child is not None:
            self.kill()  # nobody reads its data again: no reason to wait for an orderly end
        shutil.rmtree(self.dir, ignore_errors=True)
