"""The ReplicaLock backend: a primary grants a lock, and enough replicas confirm the grant."""

from __future__ import annotations

import math
from typing import Any

from ..core.algorithms.replicated import Replicated
from ..core.values import Seconds, seconds
from .redis import RedisBackend


class ReplicaBackend(RedisBackend):
    """Locks on a primary with replicas. A grant or renewal counts once WAIT reports that enough replicas have it.

    - ``min_replicas`` ("majority"): the replicas that must confirm: a number, "all", or "majority" (together with the
      primary more than half of all servers). 0 is plain asynchronous replication.
    - ``wait_timeout`` (the node timeout): seconds to wait for the replicas' confirmation.
    - ``lag`` (2): seconds without an acknowledgement after which a replica counts as absent.
    - ``quarantine`` (``True``): a promoted replica or a restarted primary grants nothing until all earlier leases have
      ended.
    - other options: those of `RedisBaseBackend`.

    Source: the ReplicaLock proposal (ncghost1/Redis-ReplicaLock); Redis documentation, WAIT.
    """

    default_quarantine = True

    def __init__(
        self,
        location: str,
        *,
        min_replicas: int | str = "majority",
        wait_timeout: Seconds | None = None,
        lag: Seconds = 2,
        **options: Any,
    ) -> None:
        super().__init__(location, **options)
        if self.nodes[0].is_cluster:
            raise ValueError("ReplicaBackend needs one primary; a Redis Cluster has several")
        named = min_replicas in ("majority", "all")
        if not named and (isinstance(min_replicas, bool) or not isinstance(min_replicas, int) or min_replicas < 0):
            raise ValueError(f'min_replicas must be "majority", "all" or a number of at least 0, not {min_replicas!r}')
        if named and not self.quarantine:
            raise ValueError(
                f"min_replicas={min_replicas!r} is computed by the quarantine; without a quarantine, give a number"
            )
        self.min_replicas = min_replicas
        self.wait_timeout = self.node_timeout if wait_timeout is None else seconds(wait_timeout, "wait_timeout")
        self.algorithm = Replicated(
            self.clock,
            key_prefix=self.fixed_prefix,
            max_ttl=self.max_ttl,
            replicas=min_replicas,
            wait=self.wait_timeout,
            lag=math.ceil(seconds(lag, "lag")),  # Redis measures it in whole seconds
            quarantine=self.quarantine,
        )
