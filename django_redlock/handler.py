"""``locks["alias"]``: one backend for each alias of the ``REDLOCK`` setting and each process, built when first used."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .backends.base import Backend
from .core.lock import Lock
from .signals import announce

DEFAULT_ALIAS = "default"
_KEYS = {"BACKEND", "LOCATION", "KEY_PREFIX", "OPTIONS"}
_WHAT_TO_WRITE = (
    'Add to your settings: REDLOCK = {"default": {"BACKEND": "django_redlock.backends.redis.RedisBackend", '
    '"LOCATION": "redis://127.0.0.1:6379/0"}}'
)


def configuration() -> Mapping[str, Mapping[str, Any]]:
    """The ``REDLOCK`` setting; without one, a ``default`` on ``CACHES["default"]`` where that is a django-redis cache."""
    configured: Mapping[str, Mapping[str, Any]] | None = getattr(settings, "REDLOCK", None)
    if configured is not None:
        return configured
    cache = getattr(settings, "CACHES", {}).get("default", {})
    if str(cache.get("BACKEND", "")).startswith("django_redis."):
        return {DEFAULT_ALIAS: {"BACKEND": "django_redlock.backends.redis.RedisBackend", "LOCATION": "cache:default"}}
    return {}


def build(alias: str, entry: Mapping[str, Any]) -> Backend:
    """The backend that one entry of the setting describes. Raises ``ImproperlyConfigured`` with what is wrong in it."""
    where = f"REDLOCK[{alias!r}]"
    if not isinstance(entry, Mapping) or "BACKEND" not in entry:
        raise ImproperlyConfigured(f"{where} is a dict with a BACKEND. {_WHAT_TO_WRITE}")
    if unknown := set(entry) - _KEYS:
        raise ImproperlyConfigured(f"{where} has unknown keys: {', '.join(sorted(unknown))}. Known: {sorted(_KEYS)}")
    options = dict(entry.get("OPTIONS", {}))
    if "KEY_PREFIX" in entry:
        options["key_prefix"] = entry["KEY_PREFIX"]
    try:
        backend: Backend = import_string(entry["BACKEND"])(entry.get("LOCATION", alias), **options)
    except (ImportError, TypeError, ValueError) as error:
        raise ImproperlyConfigured(f"{where}: {error}") from error
    backend.alias = alias
    backend.hook = announce
    return backend


class Locks(Mapping[str, Backend]):
    """The configured backends by alias. Unlike Django's connections they are shared by all threads of the process."""

    def __init__(self) -> None:
        self._built: dict[str, Backend] = {}
        self._mutex = threading.Lock()

    def __getitem__(self, alias: str) -> Backend:
        """The backend of ``alias``. Raises ``ImproperlyConfigured`` when it is not configured, or wrongly."""
        backend = self._built.get(alias)
        if backend is not None:
            return backend
        entry = configuration().get(alias)
        if entry is None:
            known = ", ".join(map(repr, configuration())) or "none is configured"
            hint = f" {_WHAT_TO_WRITE}" if alias == DEFAULT_ALIAS else ""
            raise ImproperlyConfigured(f"there is no lock backend {alias!r} in REDLOCK (aliases: {known}).{hint}")
        with self._mutex:
            if alias not in self._built:
                self._built[alias] = build(alias, entry)
            return self._built[alias]

    def __iter__(self) -> Iterator[str]:
        return iter(configuration())

    def __len__(self) -> int:
        return len(configuration())

    def reset(self) -> None:
        """Forget what was built: the next use reads the settings anew."""
        with self._mutex:
            built, self._built = self._built, {}
        for backend in built.values():
            backend.close()


    def _forked(self) -> None:
        self._mutex = threading.Lock()  # another thread may have been building a backend


locks = Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=locks._forked)


def lock(name: str, using: str = DEFAULT_ALIAS, **options: Any) -> Lock:
    """A lock on the backend ``using``: short for ``locks[using].lock(name, **options)``.

    Raises ``ImproperlyConfigured`` for an alias that is not configured, and what ``lock()`` of the backend raises.
    """
    return locks[using].lock(name, **options)


def _changed(*, setting: str, **kwargs: Any) -> None:
    if setting in ("REDLOCK", "CACHES"):
        locks.reset()


setting_changed.connect(_changed, dispatch_uid="django_redlock.handler")
