"""What a test wants to know of a lock, asked of whatever store the settings name."""

from __future__ import annotations

from ..core.lock_info import LockInfo
from ..handler import DEFAULT_ALIAS, locks


def assert_locked(name: str, using: str = DEFAULT_ALIAS) -> LockInfo:
    """Fail unless somebody holds the lock ``name``; who, and for how long. Raises ``LockUnavailable``."""
    held = locks[using].describe(name)
    if held is None:
        others = ", ".join(repr(each.name) for each in locks[using].held(limit=10)) or "none"
        raise AssertionError(f"lock {name!r} on {using!r} is not held (what is: {others})")
    return held


def assert_not_locked(name: str, using: str = DEFAULT_ALIAS) -> None:
    """Fail if somebody holds the lock ``name``. Raises ``LockUnavailable``."""
    held = locks[using].describe(name)
    if held is not None:
        raise AssertionError(f"lock {name!r} on {using!r} is held by {held.owner}")
