"""Assertions about locks. They read a lock store of the ``REDLOCK`` setting. ``using``: the store's alias."""

from __future__ import annotations

from ..backend_registry import DEFAULT_ALIAS, locks
from ..core.lock_info import LockInfo


def assert_locked(name: str, using: str = DEFAULT_ALIAS) -> LockInfo:
    """Fail unless the lock ``name`` is held, and return its `LockInfo`.

    Raises ``LockUnavailable`` if the store does not reply.
    """
    held = locks[using].describe(name)
    if held is None:
        others = ", ".join(repr(each.name) for each in locks[using].held(limit=10)) or "none"
        raise AssertionError(f"lock {name!r} on {using!r} is not held (held: {others})")
    return held


def assert_not_locked(name: str, using: str = DEFAULT_ALIAS) -> None:
    """Fail if the lock ``name`` is held. Raises ``LockUnavailable`` if the store does not reply."""
    held = locks[using].describe(name)
    if held is not None:
        raise AssertionError(f"lock {name!r} on {using!r} is held by {held.owner}")
