"""The kinds of store for a fight."""

from typing import Any

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from testproject.redis_server import RedisServer
from tests.faults.arena import CLIENTS, SHORT, Arena
from tests.support.group import Group
from tests.support.proxy import Proxy
from tests.support.replicas import Replicated
from tests.support.sentinel import Sentinel
from tests.support.service import revive


class Alone(Arena):
    args: tuple[str, ...] = ()

    def build(self) -> None:
        self.servers = self._ends.enter_context(Group([RedisServer(*self.args)])).servers
        self.stand_before()


class AloneWithAof(Alone):
    """A single Redis that writes every command to disk."""

    args = ("--appendonly", "yes", "--appendfsync", "always")


class Five(Arena):
    backend = RedlockBackend
    args: tuple[str, ...] = ()

    def build(self) -> None:
        self.servers = self._ends.enter_context(Group([RedisServer(*self.args) for _ in range(5)])).servers
        self.stand_before()

    def locations(self, client: int) -> Any:
        return self.urls()


class FiveWithAof(Five):
    """Five independent nodes that write every command to disk."""

    args = AloneWithAof.args


class WithReplicas(Arena):
    """A primary with two replicas. Each client has its own proxy, so that some clients can stay with an old primary."""

    backend = ReplicaBackend
    options = {**SHORT, "lag": 1, "wait_timeout": 0.15}

    def build(self) -> None:
        self.group = self._ends.enter_context(Replicated(2))
        self.servers = self.group.servers
        self.proxies = [self._ends.enter_context(Proxy(self.group.primary.url)) for _ in range(CLIENTS)]

    def locations(self, client: int) -> Any:
        return self.proxies[client].url

    def lead(self, *clients: int) -> None:
        """Connect these clients (by default all) to the current primary."""
        for client in clients or range(CLIENTS):
            self.proxies[client].retarget(self.group.primary.url)

    def heal(self) -> None:
        for server in self.servers:
            revive(server)
        group = self.group
        for link in group.links.values():
            link.restore()
        with group.primary.client() as client:
            client.replicaof("NO", "ONE")
            client.flushall()
        for server in self.servers:
            if server is not group.primary:
                group.follow(server)
        for proxy in self.proxies:
            proxy.restore()
        self.lead()


class Asynchronous(WithReplicas):
    """A primary with two replicas, and a backend that does not wait for replicas."""

    backend = RedisBackend
    options = Arena.options


class WithSentinels(Arena):
    """A master with two replicas and three Sentinels, which fail over automatically."""

    backend = ReplicaBackend
    options = WithReplicas.options

    def build(self) -> None:
        self.group = self._ends.enter_context(Sentinel())
        self.servers = self.group.servers

    def locations(self, client: int) -> Any:
        return self.group.url

    def heal(self) -> None:
        self.group.heal()
        with self.group.master.client() as client:
            client.flushall()
