"""The backend for one Redis (a server, a master behind Sentinels, a Cluster), and the base class of Redis backends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..client.executor import Executor
from ..client.existing_clients import credential_settings
from ..client.nodes.servers import NodeOptions, remap_from
from ..client.redact import redact
from ..client.resp import encode_eval
from ..client.urls import node_for
from ..core.algorithms.cluster import Cluster
from ..core.algorithms.quarantine import Quarantine, standalone_quarantine
from ..core.algorithms.redlock import Redlock
from ..core.algorithms.retries import run_idempotent
from ..core.algorithms.single_node import SingleNode
from ..core.contract import Store
from ..core.flow.requests import Command, EvalScript, Fault, Flow, ListPools
from ..core.flow.scripts import all_scripts, script
from ..core.keys import Keys
from ..core.lock_info import Listing
from ..core.locks.local_queue import LocalQueues
from ..core.primitives.base import KINDS, PERIODIC, Primitive
from ..core.primitives.fair import FAIR
from ..core.primitives.multi import ADOPT
from ..core.values import Seconds, millis, seconds
from ..errors import LockUnavailable
from .base import Backend
from .health import health
from .inspection import force_release, listing

UNKNOWN_SERVER = "~"  # stands for the address of a Cluster server that is not known yet


def default_node_timeout(ttl: float) -> float:
    """Return the default node timeout in seconds, which is 5 % of ``ttl``, but at least 0.05 and at most 0.25.

    It is short because waiting for a hanging node uses up the lease.
    """
    return min(0.25, max(0.05, 0.05 * ttl))


class RedisBaseBackend(Backend):
    """Base class of the backends that keep locks in Redis servers.

    - ``node_timeout`` (5 % of the ttl, between 0.05 and 0.25): seconds after which a server that doesn't reply counts
      as unavailable.
    - ``quarantine``: whether a server that may have lost its data grants no locks for ``max_ttl`` seconds.
    - ``cohort`` (64): how often in a row a lock on one Redis may be handed over within one process. Waiters of a
      process or event loop queue locally, and only the first waits in Redis. 0: no local queue, all wait in Redis.
    - ``sentinel_kwargs`` (``None``): settings of connections to Sentinels that differ from those to the data nodes:
      ``username``, ``password``, ``ssl`` (whether to use TLS), ``ssl_ca_certs`` and redis-py's other ``ssl_…``.
    - ``address_remap`` (``None``): for servers behind NAT: a dict, a function or its dotted path. It maps addresses
      that the Cluster or the Sentinels report to reachable addresses, as ``"host:port"`` or pairs.
    - ``credential_provider`` (``None``): an object with ``get_credentials()``, as redis-py's ``CredentialProvider``, or
      the dotted path of its class or of a function that returns it. Connections are replaced after ten minutes at most,
      so that credentials are renewed before they end.
    - other options: those of `Backend`.
    """

    for_tenants = True
    keeps_history = True
    kinds = KINDS
    adopting: Primitive | None = ADOPT
    periodic: Primitive | None = PERIODIC
    default_quarantine = False
    algorithm: SingleNode | Redlock

    def __init__(
        self,
        locations: Sequence[Any],
        *,
        node_timeout: Seconds | None = None,
        quarantine: bool | None = None,
        max_ttl: Seconds | None = None,
        cohort: int = 64,
        sentinel_kwargs: Mapping[str, Any] | None = None,
        address_remap: Any = None,
        credential_provider: Any = None,
        **options: Any,
    ) -> None:
        self.quarantine = self.default_quarantine if quarantine is None else bool(quarantine)
        if max_ttl is None:
            max_ttl = 60.0 if self.quarantine else 300.0
        super().__init__(locations, max_ttl=max_ttl, **options)
        default = default_node_timeout(self.ttl)
        self.node_timeout = default if node_timeout is None else seconds(node_timeout, "node_timeout")
        credentials, remap = credential_settings(credential_provider), remap_from(address_remap)
        reach = NodeOptions(self.node_timeout, remap, credentials, sentinel_kwargs or {})
        self.nodes = [node_for(location, reach) for location in locations]
        if self.quarantine and any(node.is_cluster for node in self.nodes):
            raise ValueError("quarantine=True is not possible on a Redis Cluster: it would need a marker in every slot")
        if isinstance(cohort, bool) or not isinstance(cohort, int) or cohort < 0:
            raise ValueError(f"cohort must be a number of at least 0, not {cohort!r}")
        self.local_queues = LocalQueues(self, cohort) if cohort else None
        guard = self._new_quarantine()
        greeting = encode_eval(guard.noop_request()) if guard else b""
        self._executor = Executor(self.nodes, self.node_timeout, greeting)
        self.perform, self.aperform = self._executor.perform, self._executor.aperform

    def _arm(self) -> Flow[dict[str, str]]:
        outcomes: dict[str, str] = {}
        errors: dict[str, Exception] = {}
        marker, max_ttl = f"{self.fixed_prefix}:marker".encode(), millis(self.max_ttl)
        refused = "refused: its marker names another server, whose locks may still be held; the quarantine goes on"
        for index, node in enumerate(self.nodes):
            reply = yield from run_idempotent(EvalScript(script("arm"), (marker,), (max_ttl,), index))
            if isinstance(reply, Fault):
                errors[node.label] = reply.error
                outcomes[node.label] = f"unavailable: {reply.error}"
            else:
                outcomes[node.label] = "armed" if reply == 1 else refused
        if len(errors) == len(self.nodes):
            raise LockUnavailable("", f"no node is available: {'; '.join(map(str, errors.values()))}", errors)
        return outcomes

    def _new_quarantine(self) -> Quarantine | None:
        return standalone_quarantine(self.fixed_prefix, self.max_ttl) if self.quarantine else None

    def prepare(self) -> None:
        """Load the Lua scripts into every server that replies in time, and start a quarantine that is due.

        Never raises: a missing script is loaded by the first lock that needs it.
        """
        guard = self.algorithm.quarantine
        scripts = [*all_scripts(), *(guard.scripts() if guard else ())]
        for index in range(len(self.nodes)):
            pools = self.perform(ListPools(index))
            for pool in () if isinstance(pools, Fault) else pools:
                for each in scripts:
                    loaded = self.perform(Command((b"SCRIPT", b"LOAD", each.source), index, None, pool))
                    if isinstance(loaded, Fault):
                        break  # each further script would wait for a silent server
            if guard:
                self.perform(guard.noop_request(index))

    def close(self) -> None:
        self._executor.fan_out.close()

    async def aclose(self) -> None:
        self.close()
        await asyncio.sleep(0)  # each event loop closes its connection in its next round


class RedisBackend(RedisBaseBackend):
    """Locks in one Redis: a single server, a master behind Sentinels, or a Redis Cluster.

    - ``location``: ``redis://``, ``unix://``, ``redis+sentinel://h:p,h:p/SERVICE/DB``, ``redis+cluster://h:p,h:p`` or
      ``cache:ALIAS``. With TLS: ``rediss://``, ``rediss+sentinel://``, ``rediss+cluster://``. Also a ``redis.Redis`` or
      ``valkey.Valkey`` client, or the dotted path of a function that returns one. Server, settings and connection limit
      are copied from the client; its connections are not used.
    - ``quarantine`` (``False``): whether a restarted server grants no locks for ``max_ttl`` seconds, because locks from
      before the restart may still be held.
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
        algorithm = Cluster if self.nodes[0].is_cluster else SingleNode
        self.algorithm = algorithm(self.clock, self._new_quarantine())
        self.algorithm.runs_scripts = False  # unknown

    def task_store(self) -> Store:
        return self

    def server_of(self, keys: Keys) -> str:
        node = self.nodes[0]
        if not node.is_cluster:
            return ""
        pool = node.known_pool(keys.lock)
        return pool.where if pool else UNKNOWN_SERVER

    def _listing(self, pattern: str, limit: int | None, max_keys: int | None) -> Flow[Listing]:
        return listing(self.key_prefix, pattern, limit, max_keys)

    def _force_release(self, name: str, digest: str) -> Flow[bool]:
        return force_release(name, self.keys_of(name), digest)

    def _health(self) -> Flow[list[dict[str, Any]]]:
        return health(self, 0)
