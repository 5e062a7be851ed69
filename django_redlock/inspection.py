"""What the admin and the commands ask the stores.

They are asked one by one: one that is down says so on its own line, and the others still answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from . import history
from .backends.inspection import describe_on_each_node
from .core.events import logger
from .core.keys import glob_escape
from .core.lock_info import LockInfo
from .errors import LockError
from .handler import locks
from .history.counters import MinuteStats
from .models import HeldLock, parse_pk


class Listed(NamedTuple):
    """What one store said; unless ``complete`` there is more. ``error``: why it, or a server of it, can't be asked."""

    alias: str
    locks: Sequence[LockInfo] = ()
    scanned: int = 0
    complete: bool = True
    error: str = ""


def list_locks(alias: str, pattern: str = "*", limit: int | None = None, max_keys: int | None = None) -> Listed:
    """The live locks of one store: ``limit`` at most, among about ``max_keys`` keys. Never raises."""
    try:
        found, scanned, complete, unanswered = locks[alias].listing(pattern, limit, max_keys)
        return Listed(
            alias, found, scanned, complete, "; ".join(f"{where}: {each}" for where, each in unanswered.items())
        )
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one store, the others are shown)
        return Listed(alias, complete=False, error=explain(error))


def health(alias: str) -> list[dict[str, Any]]:
    """For each node of one store a dict: ``node``, ``ok``, ``problems`` and facts. Never raises."""
    try:
        return locks[alias].health()
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one store, the others are shown)
        return [{"node": alias, "ok": False, "problems": [explain(error)]}]


def last_hour(alias: str, name: str = "") -> tuple[list[MinuteStats], str]:
    """The last hour of one lock, or of one store, and why it can't be told, if so. Never raises."""
    try:
        return history.last_hour(locks[alias], name), ""
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one store, the others are shown)
        return [], explain(error)


class NodeView(NamedTuple):
    """What one node says of one lock. Times are seconds; ``held`` is ``None`` when it knows of no holder."""

    node: str
    held: LockInfo | None
    round_trip: float
    error: str = ""


def node_views(pk: str) -> list[NodeView]:
    """Each node's own view of a lock, for stores of several; ``[]`` for others."""
    alias, name = parse_pk(pk)
    backend = locks[alias]
    if len(getattr(backend, "nodes", ())) < 2:
        return []
    seen = backend.drive(describe_on_each_node(name, backend))
    return [NodeView(node, held, trip, explain(error) if error else "") for node, held, trip, error in seen]


def explain(error: Exception) -> str:
    """What went wrong, for a person who operates the store."""
    if isinstance(error, LockError):
        return error.reason
    if isinstance(error, ImproperlyConfigured):
        return str(error)
    logger.warning("a lock store could not be looked at", exc_info=error)
    return f"{type(error).__name__}: {error}"


def pattern_for(search: str, special: str = "*?[") -> str:
    """The glob for what is looked for: a part of the name, or a glob already, if it has a ``special`` character."""
    return search if set(search) & set(special) else f"*{glob_escape(search)}*"


def find_lock(pk: str) -> HeldLock | None:
    """The lock with this primary key, and its queue, read now; ``None`` when nobody holds it.

    Raises ``LockError`` when its store can't be asked, ``ImproperlyConfigured`` when there is no such store.
    """
    alias, name = parse_pk(pk)
    try:
        held = locks[alias].describe(name)
    except (TypeError, ValueError):  # no name that a lock can have
        return None
    return HeldLock.of(alias, held) if held else None
