"""Whether a server takes locks: that is seen by taking one, of a name that nobody else asks for.

INFO doesn't tell of a user who may not run scripts or touch the keys, nor of memory that has run out.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from ..core.flows.single import ask
from ..core.lease import Lease
from ..core.replies import outcome_of
from ..core.requests import Fault, Flow
from ..errors import LockError
from .nodes import ClusterNode
from .routes import Route

if TYPE_CHECKING:
    from .server import ServerBackend

TTL = 5.0  # seconds: what is left if nobody comes to release it
NAMES = 10_000  # tries for one in a slot that a cluster's server serves


def probed(backend: ServerBackend, row: dict[str, Any], node: int, route: Route | None) -> Flow[dict[str, Any]]:
    """The row, with what the server said if it takes no locks. A server that has problems already is not asked.

    Past the guard: a quarantine is told of elsewhere.
    """
    name = _name(backend, node, route) if row["ok"] else None
    said = None if name is None else (yield from _said(backend, name, node))
    if said is None:
        return row
    return {**row, "ok": False, "problems": [*row["problems"], f"takes no locks: {said}"]}


def _said(backend: ServerBackend, name: str, node: int) -> Flow[Exception | None]:
    lock = backend.lock(name, ttl=min(TTL, backend.max_ttl), owner="redlock_check")
    primitive, claim = lock._primitive, lock._claim()
    start = backend.clock()
    for run in primitive.take(claim, 0, node), primitive.free(claim, node=node):
        reply = yield from ask(run)
        if isinstance(reply, Fault):
            return reply.error
        try:
            taken = run.undoing is None or isinstance(outcome_of(claim, reply, start), Lease)
        except LockError as error:
            return error
        if not taken:
            return LockError(name, "is held by another")
    return None


def _name(backend: ServerBackend, node: int, route: Route | None) -> str | None:
    """One that this server serves, if there is any."""
    names = (f"redlock_check:{secrets.token_hex(8)}" for _ in range(NAMES))
    asked = backend.nodes[node]
    of_a_cluster = isinstance(asked, ClusterNode)
    return next((name for name in names if not of_a_cluster or asked.known(backend._keys(name).lock) is route), None)
