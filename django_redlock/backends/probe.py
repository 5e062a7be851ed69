"""A probe that acquires and releases a lock with a random name, to check that a server grants locks.

INFO does not show missing permissions for scripts and keys, and does not show that memory has run out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..client.nodes.cluster import ClusterNode
from ..client.nodes.protocol import Node
from ..client.pool import ServerPool
from ..core.algorithms.retries import run_idempotent
from ..core.flow.replies import read_outcome
from ..core.flow.requests import Fault, Flow
from ..core.keys import Keys
from ..core.locks.lock import Lock
from ..core.values import Lease, Seconds
from ..errors import LockError


class ProbedBackend(Protocol):
    """The part of a Redis backend that the probe uses."""

    max_ttl: float
    clock: Callable[[], float]

    @property
    def nodes(self) -> Sequence[Node]: ...

    def lock(self, name: str, *, ttl: Seconds, owner: str) -> Lock: ...

    def keys_of(self, name: str) -> Keys: ...


TTL = 5.0  # seconds, after which a probe lock that was not released expires
_NO_GRANT = "grants no lock: %(error)s"
NAMES = 10_000  # random names tried to find a name in a slot of the server


def probe(backend: ProbedBackend, row: dict[str, Any], node: int, pool: ServerPool | None) -> Flow[dict[str, Any]]:
    """Acquire and release a lock on one server, and return the health ``row`` of the server.

    If the server does not grant the lock, its error is among the problems of the returned row. A server with known
    problems is not probed. The probe ignores a quarantine, which `quarantine_status` reports. ``node``: the index of
    the node. ``pool``: the pool of the server.
    """
    name = _name(backend, node, pool) if row["ok"] else None
    said = None if name is None else (yield from _refusal(backend, name, node))
    if said is None:
        return row
    return {**row, "ok": False, "problems": [*row["problems"], _NO_GRANT % {"error": said}]}


def _refusal(backend: ProbedBackend, name: str, node: int) -> Flow[Exception | None]:
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


def _name(backend: ProbedBackend, node: int, pool: ServerPool | None) -> str | None:
    """Return a random lock name whose key the server of ``pool`` serves; ``None`` if no such name was found."""
    names = (f"redlock_check:{secrets.token_hex(8)}" for _ in range(NAMES))
    asked = backend.nodes[node]
    of_a_cluster = isinstance(asked, ClusterNode)
    return next(
        (name for name in names if not of_a_cluster or asked.known_pool(backend.keys_of(name).lock) is pool), None
    )
