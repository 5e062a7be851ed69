"""One Redis: alone, behind Sentinels, or as a Cluster."""

from __future__ import annotations

from typing import Any

from ..core.flows.single import SingleNode
from ..core.keys import check_name, keys_for
from ..core.lease import Seconds, seconds
from ..core.requests import Fault, Flow
from .base import Backend, Listing
from .looking import force_release, health, listing, load_scripts
from .nodes import node_for
from .redis_io import RedisIO, Routes


def default_node_timeout(ttl: float) -> float:
    """Far below the ttl, so that a node that hangs can't eat up the lease: 5 %, between 50 and 250 ms."""
    return min(0.25, max(0.05, 0.05 * ttl))


class RedisBackend(Backend):
    """Locks in one Redis. ``location``: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://h:p,h:p/SERVICE/DB``,
    ``redis+cluster://h:p,h:p`` or ``cache:ALIAS``.

    ``node_timeout``: seconds after which a server that doesn't answer counts as unreachable (default: 5 % of the ttl,
    between 0.05 and 0.25). Other options: `Backend`. Source of the algorithm: Redis documentation, "Distributed Locks
    with Redis", on one instance.
    """

    def __init__(self, location: str, *, node_timeout: Seconds | None = None, **options: Any) -> None:
        super().__init__(location, **options)
        if not isinstance(location, str):
            raise ValueError(f"LOCATION of {type(self).__name__} is one URL, not {location!r}")
        default = default_node_timeout(self.ttl)
        self.node_timeout = default if node_timeout is None else seconds(node_timeout, "node_timeout")
        self.rule = SingleNode(self.clock)
        self._io = RedisIO([node_for(location, self.node_timeout)])
        self.perform, self.aperform = self._io.perform, self._io.aperform  # type: ignore[method-assign]

    def prepare(self) -> bool:
        """Load the scripts into every server that answers in time; whether all of them did. Never raises."""
        routes = self.perform(Routes())
        if isinstance(routes, Fault):
            return False
        for route in routes:
            self.drive(load_scripts(0, route))
        return True

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        return listing(self.key_prefix, pattern, limit, max_keys)

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        return force_release(name, keys_for(self._prefix, check_name(name)), digest)

    def _health(self) -> Flow[list[dict[str, Any]]]:
        return health(self._io.nodes[0].label)

    def close(self) -> None:
        for node in self._io.nodes:
            for route in node.used():
                route.clear()

    async def aclose(self) -> None:
        for node in self._io.nodes:
            for route in node.used():
                await route.aclear()
