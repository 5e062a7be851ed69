"""Whether a server takes locks: that is seen by taking one, of a name that nobody else asks for.

INFO doesn't tell of a user who may not run scripts or touch the keys, nor of memory that has run out.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..client.discovery import ClusterNode, Node
from ..client.pool import ServerPool
from ..core.algorithms.single_node import run_idempotent
from ..core.flow.replies import read_outcome
from ..core.flow.requests import Fault, Flow
from ..core.keys import Keys
from ..core.locks.lock import Lock
from ..core.values import Lease, Seconds
from ..errors import LockError


class ProbedBackend(Protocol):
    """A Redis backend as the probe uses it."""

    max_ttl: float
    clock: Callable[[], float]

    @property
    def nodes(self) -> Sequence[Node]: ...

    def lock(self, name: str, *, ttl: Seconds, owner: str) -> Lock: ...

    def keys_of(self, name: str) -> Keys: ...


TTL = 5.0  # seconds: what is left if nobody comes to release it
NAMES = 10_000  # tries for one in a slot that a cluster's server serves


def probe(backend: ProbedBackend, row: dict[str, Any], node: int, route: ServerPool | None) -> Flow[dict[str, Any]]:
    """The row, with what the server said if it takes no locks. A server that has problems already is not asked.

    Past the guard: a quarantine is told of elsewhere.
    """
    name = _name(backend, node, route) if row["ok"] else None
    said = None if name is None else (yield from _refusal(backend, name, node))
    if said is None:
        return row
    return {**row, "ok": False, "problems": [*row["problems"], f"takes no locks: {said}"]}


def _refusal(backend: ProbedBackend, name: str, node: int) -> Flow[Exception | None]:
    lock = backend.lock(name, ttl=min(TTL, backend.max_ttl), owner="redlock_check")
    primitive, claim = lock.primitive, lock.new_claim()
    start = backend.clock()
    for run in primitive.acquire_request(claim, 0, node), primitive.release_request(claim, node=node):
        reply = yield from run_idempotent(run)
        if isinstance(reply, Fault):
            return reply.error
        try:
            taken = run.compensation is None or isinstance(read_outcome(claim, reply, start), Lease)
        except LockError as error:
            return error
        if not taken:
            return LockError(name, "is held by another")
    return None


def _name(backend: ProbedBackend, node: int, route: ServerPool | None) -> str | None:
    """One that this server serves, if there is any."""
    names = (f"redlock_check:{secrets.token_hex(8)}" for _ in range(NAMES))
    asked = backend.nodes[node]
    of_a_cluster = isinstance(asked, ClusterNode)
    return next(
        (name for name in names if not of_a_cluster or asked.known_pool(backend.keys_of(name).lock) is route), None
    )
