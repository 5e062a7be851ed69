"""A real ZooKeeper: one server, run straight from Debian's jars."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testproject.redis_server import free_port
from tests.support.service import Service, find

if TYPE_CHECKING:
    from kazoo.client import KazooClient

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


class ZooKeeper(Service):
    """A single server with data of its own. Sessions of 0.4 to 60 s are granted."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
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
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [java, *quick, "-cp", str(JAR), main, str(self.config)]

    def ready(self) -> bool:
        """Whether it serves: it opens its port, and answers `ruok`, before that."""
        address = "127.0.0.1", self.port
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=0.25) as connection:
            connection.sendall(b"srvr")
            return b"Mode: standalone" in connection.makefile("rb").read()
        return False

    def expire(self, client: KazooClient, timeout: float = 10) -> None:
        """End the session of a connected client behind its back, as the server does after a silence.

        A second connection takes the session over and closes it; when this returns its ephemeral nodes are gone.
        """
        from kazoo.client import KazooClient

        double = KazooClient(self.hosts, client_id=client.client_id, timeout=timeout)
        double.start(timeout)
        double.stop()
        double.close()
