"""Queries of the admin and the commands: live locks, health, history.

Each function reads one store, so that the error of one store doesn't hide the data of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from . import history
from .backend_registry import locks
from .backends.inspection import NodeView, describe_on_each_node
from .core.events import logger
from .core.keys import glob_escape
from .core.lock_info import LockInfo
from .errors import LockError
from .formatting import printable_lock
from .history import MinuteStats
from .models import HeldLock


class Listed(NamedTuple):
    """The live locks that a search in one store has found.

    ``complete``: whether ``locks`` has every lock that matches. ``scanned``: the approximate number of keys that the
    search has read. ``error``: why the store or some of its servers did not reply; ``""`` if all replied.
    """

    alias: str
    locks: Sequence[LockInfo] = ()
    scanned: int = 0
    complete: bool = True
    error: str = ""


def list_locks(alias: str, pattern: str = "*", limit: int | None = None, max_keys: int | None = None) -> Listed:
    """List the live locks of one store whose names match the glob ``pattern``.

    Never raises: if the store fails, the result has the ``error`` and no locks. ``limit``: the largest number of locks
    to list; ``None`` means no limit. ``max_keys``: search about this number of keys, and list locks with waiters first.
    ``None``: end the search when ``limit`` locks are found, and list them in any order.
    """
    try:
        found, scanned, complete, unanswered = locks[alias].listing(pattern, limit, max_keys)
        return Listed(
            alias, found, scanned, complete, "; ".join(f"{where}: {each}" for where, each in unanswered.items())
        )
    except Exception as error:  # noqa: BLE001  (an error of one store must not hide the other stores)
        return Listed(alias, complete=False, error=explain(error))


def health(alias: str) -> list[dict[str, Any]]:
    """Return a dict for each node of one store: ``node``, ``ok``, ``problems`` and details, such as the version.

    Never raises: if the store fails, the result is one dict with the problem.
    """
    try:
        return locks[alias].health()
    except Exception as error:  # noqa: BLE001  (an error of one store must not hide the other stores)
        return [{"node": alias, "ok": False, "problems": [explain(error)]}]


def last_hour(alias: str, name: str = "") -> list[MinuteStats]:
    """Return the counts of events in each minute of the last hour, the current minute last.

    Never raises: if the store fails, the result is empty. ``name``: the lock; ``""`` means all locks of the store.
    """
    try:
        return history.last_hour(locks[alias], name)
    except Exception as error:  # noqa: BLE001  (an error of one store must not hide the other stores)
        explain(error)
        return []


def node_views(alias: str, name: str) -> list[NodeView]:
    """Return the reply of each node of a store about the lock ``name``.

    Returns ``[]`` for a store with a single node or a bad entry in the settings, and for an invalid name.
    """
    try:
        backend = locks[alias]
        if len(getattr(backend, "nodes", ())) < 2:
            return []
        seen = backend.drive(describe_on_each_node(name, backend))
    except (ValueError, LockError, ImproperlyConfigured):  # `find_lock` reports it
        return []
    return [view._replace(held=view.held and printable_lock(view.held)) for view in seen]


def explain(error: Exception) -> str:
    """Return a text about ``error`` for the operator. Unexpected errors are logged with their traceback."""
    if isinstance(error, LockError):
        return error.reason
    if isinstance(error, ImproperlyConfigured):
        return str(error)
    logger.warning("a lock store could not be read", exc_info=error)
    return f"{type(error).__name__}: {error}"


def pattern_for(search: str, special: str = "*?[") -> str:
    """Return the glob for a search: ``search`` itself if it has a character of ``special``, otherwise ``*search*``."""
    return search if set(search) & set(special) else f"*{glob_escape(search)}*"


def find_lock(alias: str, name: str) -> HeldLock | None:
    """Read the lock ``name`` of a store, and its waiters.

    Returns ``None`` if the lock is free or its name is invalid. Raises ``LockError`` when the store doesn't reply,
    ``ImproperlyConfigured`` when the alias is not configured.
    """
    try:
        held = locks[alias].describe(name)
    except (TypeError, ValueError):  # an invalid name of a lock
        return None
    return HeldLock.of(alias, held) if held else None
