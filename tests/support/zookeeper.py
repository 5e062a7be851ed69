"""A real ZooKeeper from Debian's jars, as a single server or as an ensemble of three."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

from testproject.redis_server import free_port
from tests.support.service import Service, find, poll, revive

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from django_redlock.backends.zookeeper import ZooKeeperBackend

JAR = "/usr/share/java/zookeeper.jar"  # its manifest names the other jars
TICK = 200  # ms; a session timeout is 2 to 300 ticks here
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
    """A single server with its own data. It grants session timeouts of 0.4 to 60 s."""

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
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        jar = find("zookeeper.jar", package="zookeeper", place=JAR)
        java = find("java", package="default-jre-headless")
        quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-Dzookeeper.forceSync=no"]
        return [java, *quick, "-cp", jar, f"org.apache.zookeeper.server.{self.main}", str(self.config)]

    def mode(self) -> str:
        """Returns `standalone`, `leader` or `follower`, or an empty text if the server does not serve requests."""
        address = "127.0.0.1", self.port
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=1) as connection:
            connection.sendall(b"srvr")
            return connection.makefile().read().partition("Mode: ")[2].partition("\n")[0]
        return ""

    def ready(self) -> bool:
        """Whether the server serves requests. It opens its port and answers `ruok` earlier."""
        return self.mode() in self.modes


class Member(ZooKeeper):
    """One server of an ensemble. It is ready when the ensemble has a leader, which it is or follows."""

    main = "quorum.QuorumPeerMain"
    modes = ("leader", "follower")

    def __init__(self) -> None:
        super().__init__()
        self.peers = free_port(self), free_port(self)

    def join(self, number: int, members: Sequence[Member]) -> None:
        lines = [f"server.{index}=127.0.0.1:{each.peers[0]}:{each.peers[1]}\n" for index, each in enumerate(members, 1)]
        self.config.write_text(self.config.read_text() + QUORUM + "".join(lines))
        (self.dir / "data").mkdir()
        (self.dir / "data" / "myid").write_text(str(number))


class Ensemble:
    """Three servers that elect a leader. `hosts` has their addresses for clients."""

    def __init__(self) -> None:
        self.members = [Member() for _ in range(3)]
        for number, member in enumerate(self.members, 1):
            member.join(number, self.members)
        self.hosts = ",".join(member.hosts for member in self.members)

    @property
    def leader(self) -> Member:
        """The current leader. Raises `TimeoutError` if there is no leader for long."""
        leaders: list[Member] = []

        def found() -> bool:
            leaders[:] = [member for member in self.members if member.mode() == "leader"]
            return bool(leaders)

        poll(found, timeout=60, what="a leader")
        return leaders[0]

    def resume(self) -> None:
        """Make sure that all members run, whether they were paused, stopped or killed."""
        with ThreadPoolExecutor() as pool:  # in parallel, because a member is ready only when a majority runs
            list(pool.map(revive, self.members))
        poll(lambda: all(member.ready() for member in self.members), timeout=60, what="three that serve")

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


def expire(hosts: str, client: KazooClient, timeout: float = 10) -> None:
    """End a session as the server does after a period of silence. A second connection takes the session over and closes
    it. Its ephemeral nodes are gone when this returns. The client may take its session back before it is closed, so
    this is repeated until the server does not know the session.
    """
    from kazoo.client import KazooClient

    session, taken = client.client_id, True
    while taken:
        double = KazooClient(hosts, client_id=session, timeout=timeout)
        double.start(60)
        taken = double.client_id == session
        double.stop()
        double.close()


def end_sessions(backends: Iterable[ZooKeeperBackend]) -> None:
    """End all sessions of the backends. `close()` spares those that hold locks, which would reconnect forever."""
    for backend in backends:
        if backend._session is not None:
            backend._session.stop(5)


# The server for most tests: a single server, or with REDLOCK_ENSEMBLE=1 an ensemble of three.
SHARED: type[ZooKeeper | Ensemble] = Ensemble if os.environ.get("REDLOCK_ENSEMBLE") == "1" else ZooKeeper
