"""The processes that fight: forked from one that has imported everything already, since that takes longer than a fight.

What they are forked from has no threads and no connections. It ends with this process, and they with it.
"""

from __future__ import annotations

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
    """One process, which fights whenever it is told to."""

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
        """SIGSTOP, and SIGCONT at the end."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`; the operating system has closed its connections when this returns."""
        self._process.kill()
        self._process.join()
        self.channel.connection.close()


def _live(connection: Connection) -> None:
    work(Channel(connection), contend)


class Told(NamedTuple):
    """What the clients say of a fight."""

    counts: Counter[str]
    failures: list[Failure]


class Clients:
    """Used for many fights; those that were killed are replaced."""

    def __init__(self) -> None:
        self.members: list[Client] = []

    def begin(self, jobs: list[Job]) -> None:
        """Let them fight."""
        while len(self.members) < len(jobs):
            self.members.append(Client())
        for client, job in zip(self.members, jobs, strict=True):
            client.channel.say("fight", **job._asdict())

    def end(self) -> Told:
        """Let them stop, and say what they saw."""
        for client in self.members:
            client.channel.say("stop")
        told = [client.channel.hear("stopped", 30) for client in self.members]
        counts = sum((each["counts"] for each in told), Counter[str]())
        return Told(counts, [failure for each in told for failure in each["failures"]])

    def kill(self, client: Client) -> None:
        """`kill -9` one of them."""
        self.members.remove(client)
        client.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self.members:
            client.kill()
