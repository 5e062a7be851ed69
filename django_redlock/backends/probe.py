"""A probe that acquires and releases a lock with a random name, to check that a server grants locks.

INFO does not show missing permissions for scripts and keys, and does not show that memory has run out.
"""

from __future__ import annotations

import secrets
from typing import Any

from ..client.nodes.cluster import ClusterNode
from ..client.pool import ServerPool
from ..core.algorithms.retries import run_idempotent
from ..core.flow.replies import read_outcome
from ..core.flow.requests import Fault, Flow
from ..core.values import Lease
from ..errors import LockError

TTL = 5.0  # seconds, after which a probe lock that was not released expires
NAMES = 10_000  # random names tried to find a name in a slot of the server


def probe(backend: Any, node: int, pool: ServerPool) -> Flow[list[str]]:
    """Acquire and release a lock on the server of ``pool``. Returns its problem, if there is one.

    The probe ignores a quarantine. ``node``: the index of the node.
    """
    names = (f"redlock_check:{secrets.token_hex(8)}" for _ in range(NAMES))
    asked = backend.nodes[node]
    of_a_cluster = isinstance(asked, ClusterNode)
    name = next(
        (each for each in names if not of_a_cluster or asked.known_pool(backend.keys_of(each).lock) is pool), ""
    )
    error = (yield from _refusal(backend, name, node)) if name else None
    return [f"grants no lock: {error}"] if error else []


def _refusal(backend: Any, name: str, node: int) -> Flow[Exception | None]:
    lock = backend.lock(name, ttl=min(TTL, backend.max_ttl), owner="redlock_check")
    primitive, claim = lock.primitive, lock.new_claim()
    start = backend.clock()
    for run in primitive.acquire_request(claim, node=node), primitive.release_request(claim, node=node):
        reply = yield from run_idempotent(run)
        if isinstance(reply, Fault):
            return reply.error
        try:
            taken = run.compensation is None or isinstance(read_outcome(claim, reply, start), Lease)
        except LockError as error:
            return error
        if not taken:
            return LockError(name, "is held by another holder")
    return None
