"""A master, two replicas and three Sentinels. The group fails over in about a second and a half."""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Self

import redis

from testproject.redis_server import RedisServer, find_redis_server, free_port
from tests.support.group import Group
from tests.support.replicas import REPLICATION, replicate, role, wait_in_sync
from tests.support.service import Service, poll, revive

SERVICE = "locks"
# failover-timeout bounds each phase of a failover, and twice that the pause before the next. down-after-milliseconds:
# a Sentinel first pings a server that it has just heard of, a promoted one too, after that time or a second, whichever
# is shorter; with a second or less it finds it down in the same moment, and deposes it. Redis 7 can be told to ping
# sooner.
CONFIG = """\
port {self.port}
bind 127.0.0.1
sentinel myid {self.id}
sentinel monitor {service} 127.0.0.1 {master} 2
sentinel down-after-milliseconds {service} 1500
sentinel failover-timeout {service} 2000
sentinel parallel-syncs {service} 2
"""


class SentinelProcess(Service):
    """One Sentinel. Its configuration lists the other servers, because discovery would take seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port(self)
        self.id = secrets.token_hex(20)
        self.config = self.dir / "sentinel.conf"
        self.client = redis.Redis("127.0.0.1", self.port, decode_responses=True, socket_timeout=2, retry=None)

    def meet(self, servers: Sequence[RedisServer], sentinels: Sequence[SentinelProcess]) -> None:
        master, *replicas = servers
        lines = [f"sentinel known-replica {SERVICE} 127.0.0.1 {replica.port}" for replica in replicas]
        lines += [f"sentinel known-sentinel {SERVICE} 127.0.0.1 {s.port} {s.id}" for s in sentinels if s is not self]
        head = CONFIG.format(self=self, service=SERVICE, master=master.port)
        self.config.write_text(head + "\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        return [find_redis_server(), str(self.config), "--sentinel", "--dir", str(self.dir)]

    def ready(self) -> bool:
        with contextlib.suppress(redis.ConnectionError):
            return bool(self.client.ping())
        return False

    def start(self) -> Self:
        """Start the Sentinel. On Redis 7, also shorten its ping period and its timeout."""
        super().start()
        with contextlib.suppress(redis.ResponseError):
            self.client.execute_command("SENTINEL", "DEBUG", "ping-period", 100)
            self.client.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 600)
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        super().__exit__()

    def named(self) -> int | None:
        """Returns the port of the master according to this Sentinel. ``None``: the Sentinel does not reply.

        Uses SENTINEL MASTERS, as redis-py does. GET-MASTER-ADDR-BY-NAME changes up to a second earlier.
        """
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            return int(self.client.sentinel_master(SERVICE)["port"])
        return None

    def content(self) -> bool:
        """Whether this Sentinel sees a quorum, a healthy master and two replicas."""
        with contextlib.suppress(redis.RedisError):
            self.client.sentinel_ckquorum(SERVICE)
            state = self.client.sentinel_master(SERVICE)
            return bool(state["flags"] == "master" and state["num-slaves"] == 2)
        return False


class Sentinel(Group):
    """The `servers` (any of them may be the master), the `sentinels`, and the `url` for clients."""

    def __init__(self) -> None:
        super().__init__(RedisServer(*REPLICATION) for _ in range(3))
        self.sentinels = [SentinelProcess() for _ in range(3)]

    @property
    def url(self) -> str:
        """The URL for clients: `redis+sentinel://h:p,h:p,h:p/SERVICE/0`."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def master(self) -> RedisServer:
        """The master according to most of the Sentinels that answer."""
        names = Counter(filter(None, (sentinel.named() for sentinel in self.sentinels)))
        port, _ = names.most_common(1)[0]
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[RedisServer]:
        """The servers except the master."""
        master = self.master
        return [server for server in self.servers if server is not master]

    def failover(self, timeout: float = 60) -> RedisServer:
        """Order the Sentinels to promote a replica while the master is healthy. Returns the new master."""
        former = self.master

        def ordered() -> bool:
            with contextlib.suppress(redis.ResponseError):  # a failover is under way, or no replica is ready
                return bool(self.sentinels[0].client.execute_command("SENTINEL", "FAILOVER", SERVICE))
            return False

        poll(ordered, timeout=timeout, what="a failover that can begin")
        return self.wait_for_new_master(former, timeout)

    def wait_for_new_master(self, former: RedisServer, timeout: float = 60) -> RedisServer:
        """Wait until all Sentinels that answer name a new master, and the new master has the role.

        A Sentinel that was not scheduled for two seconds does nothing for thirty (its "TILT" mode).

        Use it after `former.kill()`.
        """

        def agreed() -> bool:
            names = {sentinel.named() for sentinel in self.sentinels} - {None}
            return len(names) == 1 and names != {former.port} and role(self.master) == "master"

        poll(agreed, timeout=timeout, what=f"another master than {former.port}")
        return self.master

    def heal(self, timeout: float = 60) -> None:
        """Restart or resume all processes, and wait until the replicas follow the master that all Sentinels name."""
        for process in (*self.servers, *self.sentinels):
            revive(process)
        poll(self._healed, timeout=timeout, what="a master with replicas in sync, and Sentinels that are content")

    def _healed(self) -> bool:
        """Whether the replicas follow the master that all Sentinels name. Otherwise makes them follow it."""
        [named, *others] = {sentinel.named() for sentinel in self.sentinels}
        if named is None or others:
            return False
        master = next(server for server in self.servers if server.port == named)
        replicas = [server for server in self.servers if server is not master]
        if role(master) != "master":
            return False
        # A failover that the Sentinels had begun may still go on, and give the servers other roles at any moment.
        with contextlib.suppress(redis.RedisError, TimeoutError):
            for replica in replicas:
                replicate(replica, master.port)
            wait_in_sync(master, replicas, 5)
            return all(sentinel.content() for sentinel in self.sentinels)
        return False

    def form(self) -> None:
        first, *others = self.servers
        for replica in others:
            replicate(replica, first.port)
            wait_in_sync(first, [replica])
        for sentinel in self.sentinels:
            sentinel.meet(self.servers, self.sentinels)
            self._ends.enter_context(sentinel)
        self.heal()
