"""The backend for one Redis: a single server, a master behind Sentinels, or a Redis Cluster."""

from __future__ import annotations

from typing import Any

from ..client.nodes.cluster import ClusterNode
from ..client.redact import redact
from ..core.algorithms.cluster import Cluster
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Store
from ..core.flow.requests import Flow
from ..core.keys import Keys
from ..core.lock_info import Listing
from ..core.primitives.base import Primitive
from ..core.primitives.fair import FAIR
from .health import health
from .inspection import force_release, listing
from .redis_base import RedisBaseBackend

UNKNOWN_SERVER = "~"  # stands for an unknown server address, and sorts behind all addresses


class RedisBackend(RedisBaseBackend):
    """Locks in one Redis: a single server, a master behind Sentinels, or a Redis Cluster.

    - ``location``: ``redis://``, ``unix://``, ``redis+sentinel://h:p,h:p/SERVICE/DB``, ``redis+cluster://h:p,h:p`` or
      ``cache:ALIAS``. With TLS: ``rediss://``, ``rediss+sentinel://``, ``rediss+cluster://``. Also a ``redis.Redis`` or
      ``valkey.Valkey`` client, or the dotted path of a function that returns one: the client's server, settings and
      limit are taken over, not its connections.
    - ``quarantine`` (``False``): a server that has restarted grants nothing for ``max_ttl`` seconds, so it can't grant
      a lock that is still held.
    - other options: those of `RedisBaseBackend`.

    Source of the algorithm: Redis documentation, "Distributed Locks with Redis", "Correct Implementation with a Single
    Instance".
    """

    fair: Primitive | None = FAIR

    def __init__(self, location: Any, **options: Any) -> None:
        if isinstance(location, list | tuple | dict | bytes | int | None):
            hint = "; for several nodes use RedlockBackend" if isinstance(location, list | tuple) else ""
            raise ValueError(f"LOCATION of {type(self).__name__} must be one URL, not {redact(location)!r}{hint}")
        super().__init__([location], **options)
        self.location = location
        algorithm = Cluster if isinstance(self.nodes[0], ClusterNode) else SingleNode
        self.algorithm = algorithm(self.clock, self._new_quarantine())
        self.algorithm.runs_scripts = False  # unknown

    def task_store(self) -> Store:
        return self

    def server_of(self, keys: Keys) -> str:
        node = self.nodes[0]
        if not isinstance(node, ClusterNode):
            return ""
        pool = node.known_pool(keys.lock)
        return pool.where if pool else UNKNOWN_SERVER

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        return listing(self.key_prefix, pattern, limit, max_keys)

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        return force_release(name, self.keys_of(name), digest)

    def _health(self) -> Flow[list[dict[str, Any]]]:
        return health(self, 0)
