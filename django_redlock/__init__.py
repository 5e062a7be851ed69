"""Distributed locks in Redis for Django and Celery.

``lock("order:17")`` makes a lock, ``locks["default"]`` is the backend that keeps it, ``errors`` has all exceptions.
Importing this package reads no settings and opens no connection. Without Django, use the backends directly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import errors

if TYPE_CHECKING:
    from .backend_registry import locks
    from .shortcuts import aadopt, adopt, fair_lock, leader, lock, multilock, rlock, rwlock, semaphore, striped

__all__ = [
    "aadopt",
    "adopt",
    "errors",
    "fair_lock",
    "leader",
    "lock",
    "locks",
    "multilock",
    "rlock",
    "rwlock",
    "semaphore",
    "striped",
]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    # Django's side is imported when it is used: core and backends work without Django.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(".backend_registry" if name == "locks" else ".shortcuts", __name__)
    except ModuleNotFoundError as error:
        if error.name != "django":
            raise
        raise ModuleNotFoundError(
            f"django_redlock.{name} needs Django: pip install Django. Without Django, use a backend such as "
            "django_redlock.backends.redis.RedisBackend",
            name=error.name,
        ) from error
    return getattr(module, name)
