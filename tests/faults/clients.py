"""The client processes of a fight.

They are forked from a server process that has imported all modules, which saves time. The server process has no threads
and no connections. It ends with this process, and the clients end with it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple, Self

from tests.faults.contenders import Failure, Job, contend
from tests.support.processes import Channel, work

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["tests.faults.contenders", *(f"django_redlock.backends.{each}" for each in ("redis", "redlock", "replica"))]
)


class Client:
    """A client process. It fights on command."""

    def __init__(self) -> None:
        ours, theirs = _forks.Pipe()
        with theirs:
            self._process = _forks.Process(target=_live, args=[theirs], daemon=True)
            self._process.start()
        self.channel = Channel(ours)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process with SIGSTOP for the duration of the block, then continue it with SIGCONT."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process with `kill -9`. Its connections are closed when this returns."""
        self._process.kill()
        self._process.join()
        self.channel.connection.close()


def _live(connection: Connection) -> None:
    work(Channel(connection), contend)


class Reported(NamedTuple):
    """The reports of the clients about a fight."""

    counts: Counter[str]
    failures: list[Failure]


class Clients:
    """The clients of many fights. Killed clients are replaced."""

    def __init__(self) -> None:
        self.members: list[Client] = []

    def begin(self, jobs: list[Job]) -> None:
        """Start a fight in the clients."""
        while len(self.members) < len(jobs):
            self.members.append(Client())
        for client, job in zip(self.members, jobs, strict=True):
            client.channel.say("fight", **job._asdict())

    def end(self) -> Reported:
        """Stop the fight. Returns the reports of the clients."""
        for client in self.members:
            with contextlib.suppress(BrokenPipeError):  # it has failed: hear() raises its error
                client.channel.say("stop")
        reports = [client.channel.hear("stopped", 120) for client in self.members]
        counts = sum((each["counts"] for each in reports), Counter[str]())
        return Reported(counts, [failure for each in reports for failure in each["failures"]])

    def kill(self, client: Client) -> None:
        """Kill a client with `kill -9`."""
        self.members.remove(client)
        client.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self.members:
            client.kill()
