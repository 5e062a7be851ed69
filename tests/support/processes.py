"""Python functions in separate processes, which report their steps over a pipe and wait for commands.

A worker is a function of an importable module (not a test's, which imports pytest) that takes a `Channel`:

    def hold(channel, url, name):                       with Worker(hold, url, "stock") as worker:
        lock = RedisBackend(url).lock(name)                 worker.expect("held", timeout=5)
        lock.acquire()                                      worker.pause()
        channel.say("held", token=lock.token)               ...
        channel.hear("go", timeout=30)                      worker.resume()
        return lock.lost                                    worker.tell("go")
                                                            assert worker.result()
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from testproject.processes import Child
from tests.support.forked import Forked

RETURNED, RAISED = "returned", "raised"  # the last event of every worker that is not killed
MAIN = "import sys; from tests.support.processes import main; main(int(sys.argv[1]))"


class Channel:
    """One end of a pipe between processes. An event is a name with facts, which can be anything that pickles."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def say(self, event: str, **facts: Any) -> None:
        self.connection.send((event, facts))

    def hear(self, event: str, timeout: float) -> dict[str, Any]:
        """Return the facts of an event, and skip others. Raises `TimeoutError`, or `EOFError` after a hang-up."""
        deadline = time.monotonic() + timeout
        while self.connection.poll(max(0, deadline - time.monotonic())):
            said, facts = self.connection.recv()
            if said == event:
                return facts
            if said == RAISED:
                raise AssertionError(f"the worker failed before {event!r}:\n{facts['traceback']}")
        raise TimeoutError(f"no {event!r} within {timeout:g} s")


class Worker:
    """Runs `function(channel, *args)` in a child process, which ends with this context at the latest."""

    start_process: Callable[..., Any] = subprocess.Popen

    def __init__(self, function: Callable[..., Any], *args: Any, **env: str) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="worker-"))
        ours, theirs = multiprocessing.Pipe()
        with theirs:
            path = os.pathsep.join(filter(None, sys.path))  # the child can import the same modules
            command = [sys.executable, "-c", MAIN, str(theirs.fileno())]
            fds = [theirs.fileno()]
            env = {"PYTHONPATH": path, **env}
            self.child = Child(command, output=self.dir / "log", env=env, pass_fds=fds, start=self.start_process)
        self.pid = self.child.pid
        self.channel = Channel(ours)
        ours.send((function, args))

    def expect(self, event: str, timeout: float = 60) -> dict[str, Any]:
        """Return the facts of an event. Raises `AssertionError` with the worker's log if it failed or is late."""
        try:
            return self.channel.hear(event, timeout)
        except (TimeoutError, EOFError, ConnectionError) as error:
            reason = error if isinstance(error, TimeoutError) else f"the worker ended before {event!r}"
            raise AssertionError(f"{reason}; it wrote:\n{self.child.log()}") from error

    def result(self, timeout: float = 60) -> Any:
        return self.expect(RETURNED, timeout)["value"]

    def tell(self, event: str, **facts: Any) -> None:
        self.channel.say(event, **facts)

    def pause(self) -> None:
        self.child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.child.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with `kill -9`. Its connections are closed when this returns."""
        self.child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.child.kill()
        self.channel.connection.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class ForkedWorker(Worker):
    """A worker in a process that has imported Django, Celery and redis-py in advance: see `tests.support.forked`."""

    start_process = Forked


def main(fd: int) -> None:
    channel = Channel(Connection(fd))
    work(channel, *channel.connection.recv())


def work(channel: Channel, function: Callable[..., Any], args: Sequence[Any] = ()) -> None:
    try:
        value = function(channel, *args)
    except BaseException:
        with contextlib.suppress(ConnectionError):  # the test may have ended
            channel.say(RAISED, traceback=traceback.format_exc())
        raise
    channel.say(RETURNED, value=value)
