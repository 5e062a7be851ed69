"""A primary with replicas. Tests cut replicas off and promote them by hand, without Sentinel."""

from collections.abc import Iterable

import redis

from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.proxy import Proxy
from tests.support.service import poll

# Diskless replication would make a second replica wait for a second, and by default for five seconds.
REPLICATION = ("--repl-diskless-sync", "no", "--repl-ping-replica-period", "1")


def replicate(server: RedisServer, port: int) -> None:
    with server.client() as client:
        client.replicaof("127.0.0.1", port)


def wait_in_sync(primary: RedisServer, replicas: Iterable[RedisServer], timeout: float = 60) -> None:
    """Wait until each replica has acknowledged all writes, so that WAIT counts it. Raises `TimeoutError`."""
    ports = {replica.port for replica in replicas}

    def acknowledged() -> bool:
        # Write something: the primary knows the offset of a replica only after a request for it. Before the first write
        # both offsets are 0, where a Valkey stays until it has a replica.
        asked = client.pipeline(transaction=False).publish("in sync?", "").info("replication").wait(len(ports), 50)
        try:
            _, before, _, after = asked.info("replication").execute()
        except redis.RedisError:  # a Sentinel has given the server another role, and closed its connections
            return False
        followers = [value for key, value in after.items() if key.startswith("slave") and isinstance(value, dict)]
        return ports <= {
            known["port"] for known in followers if known["offset"] >= max(1, before["master_repl_offset"])
        }

    with primary.client() as client:
        poll(acknowledged, timeout=timeout, what=f"replicas {ports} of {primary.port} in sync")


def role(server: RedisServer) -> str:
    """Returns `master` or `slave`, or `down` if the server does not reply within ten seconds."""
    try:
        with server.client(socket_timeout=10, retry=None) as client:
            return str(client.info("replication")["role"])
    except redis.RedisError:
        return "down"


class Replicated(Group):
    """A `primary` and its `replicas`. `links[replica]` is the proxy between the replica and the primary."""

    def __init__(self, replicas: int = 1, kind: type[RedisServer] = RedisServer) -> None:
        super().__init__(kind(*REPLICATION) for _ in range(1 + replicas))
        self.primary = self.servers[0]
        self.replicas: list[RedisServer] = []
        self.links: dict[RedisServer, Proxy] = {}

    def form(self) -> None:
        for server in self.servers[1:]:
            self.follow(server)

    def follow(self, server: RedisServer) -> None:
        """Make a server, for example a former primary, follow the primary, and wait until it has caught up."""
        if server not in self.links:
            self.links[server] = self._ends.enter_context(Proxy(self.primary.url))
        self.links[server].retarget(self.primary.url)
        self.links[server].restore()
        replicate(server, self.links[server].port)
        wait_in_sync(self.primary, [server])
        self.replicas = [*(other for other in self.replicas if other is not server), server]

    def cut_off(self, *replicas: RedisServer) -> None:
        """Drop all bytes between the replicas and their primary. The connections stay open."""
        for replica in replicas:
            self.links[replica].drop()

    def rejoin(self, *replicas: RedisServer) -> None:
        """Undo `cut_off()`, and wait until the replicas have caught up."""
        for replica in replicas:
            self.links[replica].restore()
        wait_in_sync(self.primary, replicas)

    def promote(self, replica: RedisServer) -> RedisServer:
        """Make a replica the primary, and return the former one, which stays a primary until `follow()` is called."""
        with replica.client() as client:
            client.replicaof("NO", "ONE")
        former, self.primary, self.replicas = self.primary, replica, []
        return former
