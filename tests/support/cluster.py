"""A Redis Cluster, created with commands that Redis 6.2 supports."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import redis
from redis.crc import key_slot

from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.service import poll, revive

SLOTS = 16384
OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-config-file", "nodes.conf")


def ask(node: RedisServer, *command: object) -> Any:
    """Send a command to one node, even if the key's slot is on another node. Returns the reply."""
    with node.client(decode_responses=True) as client:
        return client.execute_command(*command)


class Cluster(Group):
    """Some `nodes`, by default three, and the `url` for clients. A new cluster refuses writes for two seconds."""

    def __init__(self, nodes: Iterable[RedisServer] | None = None) -> None:
        super().__init__(nodes or (RedisServer(*OPTIONS) for _ in range(3)))
        self.nodes = self.servers

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def client(self, **options: Any) -> redis.RedisCluster:
        return redis.RedisCluster.from_url(self.nodes[0].url, **options)

    def owner(self, key: str, ranges: Any = None) -> RedisServer:
        """Returns the node that serves the key. ``ranges``: the reply to CLUSTER SLOTS, if it is known."""
        slot, ranges = key_slot(key.encode()), ranges or ask(self.nodes[0], "CLUSTER", "SLOTS")
        port = next(master[1] for first, last, master, *_ in ranges if first <= slot <= last)
        return next(node for node in self.nodes if node.port == port)

    def names_on_each(self, begin: str, count: int = 1, form: str = "redlock:{{{}}}") -> list[list[str]]:
        """Returns for each node ``count`` names of locks that it serves. ``form``: the lock's key."""
        found: dict[RedisServer, list[str]] = {node: [] for node in self.nodes}
        ranges = ask(self.nodes[0], "CLUSTER", "SLOTS")
        for number in itertools.count():
            name = f"{begin}:{number}"
            found[self.owner(form.format(name), ranges)].append(name)
            if all(len(names) >= count for names in found.values()):
                return [names[:count] for names in found.values()]
        raise AssertionError

    @contextlib.contextmanager
    def migrating(self, key: str, to: RedisServer) -> Iterator[None]:
        """Context manager in which the key's slot migrates: its node answers ASK for keys that it doesn't have."""
        source, slot = self.owner(key), key_slot(key.encode())
        ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", _id(to))
        try:
            yield
        finally:
            for node in (source, to):
                ask(node, "CLUSTER", "SETSLOT", slot, "STABLE")

    def move_keys(self, key: str, to: RedisServer) -> None:
        """Move all keys of the key's slot, with their ttl. Use it inside `migrating()`."""
        source, slot = self.owner(key), key_slot(key.encode())
        while keys := ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            ask(source, "MIGRATE", "127.0.0.1", to.port, "", 0, 20_000, "KEYS", *keys)

    def move_slot(self, key: str, to: RedisServer) -> None:
        """Move the key's slot and its keys to another node. The old node then answers MOVED."""
        with self.migrating(key, to):
            self.complete_move(key, to)

    def complete_move(self, key: str, to: RedisServer) -> None:
        """Move all keys of the key's slot, and the slot. Use it inside `migrating()`."""
        self.move_keys(key, to)
        source = self.owner(key)
        for node in (to, source, *self.nodes):
            ask(node, "CLUSTER", "SETSLOT", key_slot(key.encode()), "NODE", _id(to))

    def heal(self, timeout: float = 60) -> None:
        """Restart or resume all nodes, and wait until each node finds the cluster complete."""
        for node in self.nodes:
            revive(node)
        poll(lambda: all(map(self._complete, self.nodes)), timeout=timeout, what="a cluster that is complete")

    def form(self) -> None:
        count = len(self.nodes)
        for number, node in enumerate(self.nodes):
            ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            ask(node, "CLUSTER", "ADDSLOTS", *range(SLOTS * number // count, SLOTS * (number + 1) // count))
        for _ in range(6):  # a node forgets another one that does not answer the first message in time
            for one, other in itertools.combinations(self.nodes, 2):
                ask(one, "CLUSTER", "MEET", "127.0.0.1", getattr(other, "tls_port", other.port))
            with contextlib.suppress(TimeoutError):
                return self.heal(10)
        return self.heal()

    def _complete(self, node: RedisServer) -> bool:
        state = set(ask(node, "CLUSTER", "INFO").split())
        return {"cluster_state:ok", f"cluster_known_nodes:{len(self.nodes)}", f"cluster_slots_ok:{SLOTS}"} <= state


def _id(node: RedisServer) -> str:
    return str(ask(node, "CLUSTER", "MYID"))
