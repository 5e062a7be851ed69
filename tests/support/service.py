"""The base class of all servers except redis-server, which is in `testproject.redis_server`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from testproject.processes import Child, wait_until
from testproject.redis_server import RedisServer

START_TIMEOUT = 200
# Whether tests may use system packages besides redis-server. tests/conftest.py forbids it in the tiers of `make test`.
packages_allowed = True


def poll(ready: Callable[[], bool], *, timeout: float, what: str) -> None:
    """Poll `ready` every 10 ms. Raises `TimeoutError`, which names `what`, after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s in vain for: {what}")
        time.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    """Poll ``condition`` in a thread for a minute at most."""
    await asyncio.to_thread(poll, condition, timeout=60, what="a condition")


def find(name: str, *, package: str, place: str = "") -> str:
    """Returns the path of a program on PATH, or of the newest file that the pattern `place` matches."""
    assert packages_allowed, f"tests/tiers.py: a test that needs the package {package} belongs in the tier `rest`"
    files = Path("/").glob(place[1:]) if place else ()
    if path := shutil.which(name) or max(map(str, files), key=_numbers, default=None):
        return path
    raise FileNotFoundError(f"{place or name} not found (Debian and Ubuntu: apt install {package})")


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path)]


def revive(server: RedisServer | Service) -> None:
    """Make sure that the server runs, whether it was paused, stopped or killed."""
    try:
        server.resume()
    except RuntimeError:  # the server is not running
        server.start()


class Service:
    """One server process with its own directory. A subclass defines `command()` and `ready()`."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__.lower()}-"))
        self._child: Child | None = None

    def command(self) -> Sequence[str]:
        """Returns the command line. Raises `FileNotFoundError` if the program is not installed."""
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    @property
    def pid(self) -> int:
        """The process id of the running server, which is also the id of its process group."""
        return self._running.pid

    @property
    def _running(self) -> Child:
        if self._child is None:
            raise RuntimeError(f"{type(self).__name__} is not running")
        return self._child

    def start(self) -> Self:
        """Start the server with the same ports and data as before, and wait until it is ready."""
        if self._child is not None:
            raise RuntimeError(f"{type(self).__name__} is running already")
        child = Child(self.command(), output=self.dir / "log", env=self.environment())
        wait_until(self.ready, child=child, timeout=START_TIMEOUT, what=type(self).__name__)
        self._child = child
        return self

    def stop(self) -> None:
        """Stop the server in order. Does nothing if the server is not running."""
        if self._child is not None:
            self.resume()
            self._child.stop()
            self._child = None

    def kill(self) -> None:
        """Kill the process group with `kill -9`. `start()` restarts the server with the data on disk."""
        self._running.kill()
        self._child = None

    def pause(self) -> None:
        """Stop the process with SIGSTOP. Connections stay open, and requests get no reply."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process with SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            return self if self._child else self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        if self._child is not None:
            self.kill()  # an orderly shutdown is not needed, because the data is not read again
        shutil.rmtree(self.dir, ignore_errors=True)
