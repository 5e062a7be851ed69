"""Distributed locks in Redis for Django and Celery.

``lock("order:17")`` is a lock, ``locks["default"]`` the backend that it lives in, ``errors`` what can go wrong.
Importing this package reads no settings and connects nowhere; without Django, use the backends directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors

if TYPE_CHECKING:
    from .handler import lock, locks

__all__ = ["errors", "lock", "locks"]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    # Django is only imported when its side of the package is used.
    if name in ("lock", "locks"):
        from . import handler

        return getattr(handler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
