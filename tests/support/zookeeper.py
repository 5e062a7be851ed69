"""A real ZooKeeper, run straight from Debian's jars: one server, or an ensemble of three."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from testproject.redis_server import free_port
from tests.support.service import Service, find, poll, revive

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from django_redlock.backends.zookeeper import ZooKeeperBackend

JAR = Path("/usr/share/java/zookeeper.jar")  # its manifest names the other jars
TICK = 200  # ms; sessions last between 2 and 300 ticks here
CONFIG = """\
tickTime={tick}
maxSessionTimeout={longest}
dataDir={data}
clientPortAddress=127.0.0.1
clientPort={port}
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""
QUORUM = """\
initLimit=50
syncLimit=50
cnxTimeout=1
"""


class ZooKeeper(Service):
    """A single server with data of its own. Sessions of 0.4 to 60 s are granted."""

    main = "ZooKeeperServerMain"
    modes = ("standalone",)

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(self)
        data = self.dir / "data"
        self.config = self.dir / "zoo.cfg"
        self.config.write_text(CONFIG.format(tick=TICK, longest=300 * TICK, data=data, port=self.port))

    @property
    def hosts(self) -> str:
        """The address as clients want it, `host:port`."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        if not JAR.exists():
            raise FileNotFoundError(f"{JAR} not found (Debian and Ubuntu: apt install zookeeper)")
        java = find("java", package="default-jre-headless")
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dzookeeper.forceSync=no"]
        return [java, *quick, "-cp", str(JAR), f"org.apache.zookeeper.server.{self.main}", str(self.config)]

    def mode(self) -> str:
        """What it says it is: `standalone`, `leader`, `follower`; empty when it does not serve."""
        address = "127.0.0.1", self.port
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=0.25) as connection:
            connection.sendall(b"srvr")
            return connection.makefile().read().partition("Mode: ")[2].partition("\n")[0]
        return ""

    def ready(self) -> bool:
        """Whether it serves: it opens its port, and answers `ruok`, before that."""
        return self.mode() in self.modes

    def expire(self, client: KazooClient, timeout: float = 10) -> None:
        """End the session of a connected client behind its back."""
        expire(self.hosts, client, timeout)


class Member(ZooKeeper):
    """One server of an ensemble; ready when the ensemble has a leader and this one follows it, or is it."""

    main = "quorum.QuorumPeerMain"
    modes = ("leader", "follower")

    def __init__(self) -> None:
        super().__init__()
        self.peers = free_port(self), free_port(self)

    def join(self, number: int, members: Sequence[Member]) -> None:
        """Learn of the others, before the start."""
        lines = [f"server.{index}=127.0.0.1:{each.peers[0]}:{each.peers[1]}\n" for index, each in enumerate(members, 1)]
        self.config.write_text(self.config.read_text() + QUORUM + "".join(lines))
        (self.dir / "data").mkdir()
        (self.dir / "data" / "myid").write_text(str(number))


class Ensemble:
    """Three servers, which elect a leader; `hosts` is where clients find them."""

    def __init__(self) -> None:
        self.members = [Member() for _ in range(3)]
        for number, member in enumerate(self.members, 1):
            member.join(number, self.members)
        self.hosts = ",".join(member.hosts for member in self.members)

    @property
    def leader(self) -> Member:
        """The member that leads now; `TimeoutError` when there is none for long."""
        poll(lambda: any(member.mode() == "leader" for member in self.members), timeout=20, what="a leader")
        return next(member for member in self.members if member.mode() == "leader")

    def resume(self) -> None:
        """Whatever a test did: all of them run."""
        with ThreadPoolExecutor() as pool:  # none is ready before another is
            list(pool.map(revive, self.members))
        poll(lambda: all(member.ready() for member in self.members), timeout=20, what="three that serve")

    def expire(self, client: KazooClient, timeout: float = 10) -> None:
        """End the session of a connected client behind its back."""
        expire(self.hosts, client, timeout)

    def __enter__(self) -> Self:
        try:
            self.resume()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for member in self.members:
            member.__exit__()


def expire(hosts: str, client: KazooClient, timeout: float) -> None:
    """End a session as the server does after a silence.

    A second connection takes the session over and closes it; when this returns its ephemeral nodes are gone.
    """
    from kazoo.client import KazooClient

    double = KazooClient(hosts, client_id=client.client_id, timeout=timeout)
    double.start(timeout)
    double.stop()
    double.close()


def end_sessions(backends: Iterable[ZooKeeperBackend]) -> None:
    """Also of backends that hold locks, which `close()` spares: they would look for their server for ever."""
    for backend in backends:
        if backend._session is not None:
            backend._session.stop(5)


# What the tests share: one server, which is quick; with REDLOCK_ENSEMBLE=1 three.
SHARED: type[ZooKeeper | Ensemble] = Ensemble if os.environ.get("REDLOCK_ENSEMBLE") == "1" else ZooKeeper
