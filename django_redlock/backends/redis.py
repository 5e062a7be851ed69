"""One Redis: alone, behind Sentinels, or as a Cluster."""

from __future__ import annotations

from typing import Any

from ..core.flows.scattered import Scattered
from ..core.flows.single import SingleNode
from ..core.keys import Keys
from ..core.line import FAIR
from ..core.primitives import Primitive
from ..core.requests import Flow
from .base import Listing
from .discretion import without_password
from .looking import force_release, listing
from .nodes import ClusterNode
from .server import ServerBackend

UNKNOWN = "~"  # in place of a server's address, and behind all of them


class RedisBackend(ServerBackend):
    """Locks in one Redis.

    ``location``: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://h:p,h:p/SERVICE/DB``,
    ``redis+cluster://h:p,h:p`` or ``cache:ALIAS``.

    ``quarantine`` (off): with it, a restart costs ``max_ttl`` without new locks, and none gives a lock away twice.
    Options: `ServerBackend`. Source of the algorithm: Redis documentation, "Distributed Locks with Redis", on one
    instance.
    """

    fair: Primitive | None = FAIR

    def __init__(self, location: str, **options: Any) -> None:
        if not isinstance(location, str):
            raise ValueError(f"LOCATION of {type(self).__name__} is one URL, not {without_password(location)!r}")
        super().__init__([location], **options)
        self.location = location
        rule = Scattered if isinstance(self.nodes[0], ClusterNode) else SingleNode
        self.rule = rule(self.clock, self._guard())

    def server_of(self, keys: Keys) -> str:
        node = self.nodes[0]
        if not isinstance(node, ClusterNode):
            return ""
        route = node.known(keys.lock)
        return route.where if route else UNKNOWN

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        return listing(self.key_prefix, pattern, limit, max_keys)

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        return force_release(name, self._keys(name), digest)

    def _health(self) -> Flow[list[dict[str, Any]]]:
        return (yield from self._node_health())
