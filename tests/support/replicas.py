"""A primary with replicas, each of which can be cut off, and promoted by hand: no Sentinel interferes."""

from __future__ import annotations

from collections.abc import Iterable

import redis

from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.proxy import Proxy
from tests.support.service import poll

# Without a disk in between, a replica that comes while another is served waits for a second, and by default for 5 s.
REPLICATION = ("--repl-diskless-sync", "no", "--repl-ping-replica-period", "1")


def replicate(server: RedisServer, port: int) -> None:
    """Make it a replica of the server behind this loopback port."""
    with server.client() as client:
        client.replicaof("127.0.0.1", port)


def wait_in_sync(primary: RedisServer, replicas: Iterable[RedisServer], timeout: float = 20) -> None:
    """Wait until each has acknowledged all that the primary has, so that WAIT counts it; else `TimeoutError`."""
    ports = {replica.port for replica in replicas}

    def acknowledged() -> bool:
        # Something must be written: of a replica that was never asked the primary knows nothing. Before that both are
        # at 0, where a Valkey stays until it has a replica.
        asked = client.pipeline(transaction=False).publish("in sync?", "").info("replication").wait(len(ports), 50)
        _, before, _, after = asked.info("replication").execute()
        followers = [value for key, value in after.items() if key.startswith("slave") and isinstance(value, dict)]
        return ports <= {
            known["port"] for known in followers if known["offset"] >= max(1, before["master_repl_offset"])
        }

    with primary.client() as client:
        poll(acknowledged, timeout=timeout, what=f"replicas {ports} of {primary.port} in sync")


def role(server: RedisServer) -> str:
    """`master` or `slave`, or `down` when it does not answer within a second."""
    try:
        with server.client(socket_timeout=1, retry=None) as client:
            return str(client.info("replication")["role"])
    except redis.RedisError:
        return "down"


class Replicated(Group):
    """A `primary` and the `replicas` that follow it; `links[replica]` is the proxy through which it does."""

    def __init__(self, replicas: int = 1, kind: type[RedisServer] = RedisServer) -> None:
        super().__init__(kind(*REPLICATION) for _ in range(1 + replicas))
        self.primary = self.servers[0]
        self.replicas: list[RedisServer] = []
        self.links: dict[RedisServer, Proxy] = {}

    def form(self) -> None:
        for server in self.servers[1:]:
            self.follow(server)

    def follow(self, server: RedisServer) -> None:
        """Let a server (a former primary, a restarted one) follow the primary, and wait until it has caught up."""
        if server not in self.links:
            self.links[server] = self._ends.enter_context(Proxy(self.primary.url))
        self.links[server].retarget(self.primary.url)
        self.links[server].restore()
        replicate(server, self.links[server].port)
        wait_in_sync(self.primary, [server])
        self.replicas = [*(other for other in self.replicas if other is not server), server]

    def cut_off(self, *replicas: RedisServer) -> None:
        """Lose all that passes between them and their primary; neither is told."""
        for replica in replicas:
            self.links[replica].drop()

    def rejoin(self, *replicas: RedisServer) -> None:
        """Undo `cut_off()` and wait until they have caught up."""
        for replica in replicas:
            self.links[replica].restore()
        wait_in_sync(self.primary, replicas)

    def promote(self, replica: RedisServer) -> RedisServer:
        """Make a replica the primary. The former one, which is returned, and its replicas go on as they are:
        two primaries, until `follow()` is called for the others.
        """
        with replica.client() as client:
            client.replicaof("NO", "ONE")
        former, self.primary, self.replicas = self.primary, replica, []
        return former
