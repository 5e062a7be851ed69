"""A master, two replicas and three Sentinels. The group fails over in about a second and a half."""

from __future__ import annotations

import contextlib
import secrets
import time
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
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            return bool(self.client.ping())
        return False

    def start(self) -> Self:
        """Start the Sentinel. On Redis 7, also shorten its ping period and its timeout. A Sentinel that was not
        scheduled for two seconds does nothing for thirty (its "TILT" mode). Here half a second is enough, which is less
        than the timeout, so that a stall of the machine is not taken for a failure; and one second of rest is enough.
        """
        super().start()
        poll(self._hurry, timeout=60, what="a Sentinel that can be told to hurry")
        return self

    def _hurry(self) -> bool:
        periods = "ping-period", 100, "tilt-trigger", 500, "tilt-period", 1000
        try:
            self.client.execute_command("SENTINEL", "DEBUG", *periods)
            self.client.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", 600)
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        except redis.ResponseError:  # an older Redis
            pass
        return True

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        super().__exit__()

    def named(self) -> int | None:
        """Returns the port of the master according to this Sentinel. ``None``: the Sentinel does not reply. Uses
        SENTINEL MASTERS, as redis-py does. GET-MASTER-ADDR-BY-NAME changes up to a second earlier.
        """
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            return int(self.client.sentinel_master(SERVICE)["port"])
        return None

    def content(self) -> bool:
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
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    @property
    def master(self) -> RedisServer:
        """The master according to most of the Sentinels that answer."""
        names = Counter[int]()

        def answers() -> bool:
            names.update(filter(None, (sentinel.named() for sentinel in self.sentinels)))
            return bool(names)

        poll(answers, timeout=60, what="a Sentinel that answers")
        port, _ = names.most_common(1)[0]
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[RedisServer]:
        master = self.master
        return [server for server in self.servers if server is not master]

    def failover(self, timeout: float = 100) -> RedisServer:
        """Order the Sentinels to promote a replica, and again after a while, since they may give up."""
        former, first, again_at = self.master, self.sentinels[0], 0.0

        def promoted() -> bool:
            nonlocal again_at
            if time.monotonic() >= again_at and first.named() == former.port:
                # A failover is under way, or no replica is ready; or there was no reply in time.
                with contextlib.suppress(redis.ResponseError, redis.ConnectionError, redis.TimeoutError):
                    first.client.execute_command("SENTINEL", "FAILOVER", SERVICE)
                    again_at = time.monotonic() + 15
            return self._follow_another(former)

        poll(promoted, timeout=timeout, what=f"another master than {former.port}")
        return self.master

    def wait_for_new_master(self, former: RedisServer, timeout: float = 100) -> RedisServer:
        """Wait until all Sentinels name a new master, which has the role. Use it after `former.kill()`."""
        poll(lambda: self._follow_another(former), timeout=timeout, what=f"another master than {former.port}")
        return self.master

    def _follow_another(self, former: RedisServer) -> bool:
        """Return whether all Sentinels name one master, which is not ``former`` and has the role."""
        names = {sentinel.named() for sentinel in self.sentinels}
        return len(names) == 1 and names.isdisjoint({former.port, None}) and role(self.master) == "master"

    def heal(self, timeout: float = 100) -> None:
        """Restart or resume all processes, and wait until the replicas follow the master that all Sentinels name."""
        for process in (*self.servers, *self.sentinels):
            revive(process)
        poll(self._healthy, timeout=timeout, what="replicas of the master of Sentinels that are content")

    def _healthy(self) -> bool:
        """Make the servers follow the master that all Sentinels name. A failover may change it at any step."""
        names = {sentinel.named() for sentinel in self.sentinels}
        if len(names) > 1 or None in names:
            return False
        master = next(server for server in self.servers if server.port in names)
        replicas = [server for server in self.servers if server is not master]
        try:
            if role(master) != "master":
                return False
            for replica in replicas:
                replicate(replica, master.port)
            wait_in_sync(master, replicas, 10)
        except (redis.RedisError, TimeoutError):  # a Sentinel gives a server another role at the same moment
            return False
        return all(sentinel.content() for sentinel in self.sentinels)

    def form(self) -> None:
        first, *others = self.servers
        for replica in others:
            replicate(replica, first.port)
            wait_in_sync(first, [replica])
        for sentinel in self.sentinels:
            sentinel.meet(self.servers, self.sentinels)
            self._ends.enter_context(sentinel)
        self.heal()
