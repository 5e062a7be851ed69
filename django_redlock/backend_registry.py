"""``locks["alias"]``: the backends of the ``REDLOCK`` setting by alias. Each process builds a backend at first use."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from weakref import WeakSet

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .backends.base import Backend
from .client.redact import redact
from .core.events import Event
from .core.locks.hand_off import HANDED_OFF
from .errors import LockUnavailable
from .history import minutes
from .history.event_queue import EventRecord, event_queue
from .signals import announce, task_duplicate
from .transactions import warn_of_early_release

DEFAULT_ALIAS = "default"
REDIS_BACKEND = "django_redlock.backends.redis.RedisBackend"
WHAT_TO_WRITE = (
    f'Add to your settings: REDLOCK = {{"default": {{"BACKEND": "{REDIS_BACKEND}", '
    '"LOCATION": "redis://127.0.0.1:6379/0"}}'
)
BACKENDS = (
    "Backends of this package: "
    "django_redlock.backends.redis.RedisBackend, …redlock.RedlockBackend, …replica.ReplicaBackend, "
    "…timestamp.TimestampBackend, …zookeeper.ZooKeeperBackend, …locmem.LocMemBackend, …dummy.DummyBackend"
)
_KEYS = ("BACKEND", "LOCATION", "KEY_PREFIX", "OPTIONS")
_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_REDIS_CACHES = ("django_redis.", "django_valkey.", "django.core.cache.backends.redis.")


def configuration() -> Mapping[str, Any]:
    """Return the ``REDLOCK`` setting: a mapping from aliases to entries.

    If the setting is missing or ``None``, returns an entry for the Redis of ``CACHES["default"]``. If that cache is not
    on Redis, returns an empty mapping. Raises ``ImproperlyConfigured`` when the setting is not a mapping.
    """
    configured = getattr(settings, "REDLOCK", None)
    if configured is None:
        cache = getattr(settings, "CACHES", {}).get("default", {})
        return {DEFAULT_ALIAS: {"BACKEND": REDIS_BACKEND, "LOCATION": "cache:default"}} if is_redis_cache(cache) else {}
    if not isinstance(configured, Mapping):
        raise ImproperlyConfigured(f"REDLOCK must be a dict of aliases, not {redact(configured)!r}. {WHAT_TO_WRITE}")
    return configured


def is_redis_cache(cache: Mapping[str, Any]) -> bool:
    """Return whether ``cache``, an entry of ``CACHES``, is one of the known Redis caches."""
    return str(cache.get("BACKEND", "")).startswith(_REDIS_CACHES)


def backend_class(alias: str, entry: Any) -> Callable[..., Backend]:
    """Import and return the BACKEND class of ``entry``, the entry of ``alias`` in the ``REDLOCK`` setting.

    Raises ``ImproperlyConfigured`` for a bad entry.
    """
    where = f"REDLOCK[{alias!r}]"
    if not isinstance(entry, Mapping) or "BACKEND" not in entry:
        raise ImproperlyConfigured(f"{where} must be a dict with a BACKEND, not {redact(entry)!r}. {WHAT_TO_WRITE}")
    if unknown := [str(key) for key in entry if key not in _KEYS]:
        raise ImproperlyConfigured(f"{where} has unknown keys: {', '.join(unknown)} (known: {', '.join(_KEYS)})")
    path = entry["BACKEND"]
    try:
        found = import_string(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImproperlyConfigured(f"{where}: BACKEND {path!r} can't be imported: {error}. {BACKENDS}") from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise ImproperlyConfigured(f"{where}: BACKEND {path!r} is not a lock backend. {BACKENDS}")
    return found


def build(alias: str, entry: Any) -> Backend:
    """Return a new backend for ``entry``, the entry of ``alias`` in the ``REDLOCK`` setting. Opens no connection.

    Raises ``ImproperlyConfigured`` for a bad entry, ``LockUnavailable`` when the process can open no more files.
    """
    make = backend_class(alias, entry)
    where = f"REDLOCK[{alias!r}]"
    options = entry.get("OPTIONS") or {}
    if not isinstance(options, Mapping):
        raise ImproperlyConfigured(f"{where}: OPTIONS must be a dict, not {options!r}")
    try:
        prefix = {"key_prefix": key_prefix_of(entry["KEY_PREFIX"])} if "KEY_PREFIX" in entry else {}
        backend = make(entry.get("LOCATION", ""), **{**options, **prefix})
    except LockUnavailable:  # not an error of the settings
        raise
    except Exception as error:  # a custom backend may raise any exception
        raise ImproperlyConfigured(f"{where}: {error}") from error
    backend.alias = alias
    backend.hook = partial(_dispatch, backend)
    return backend


def key_prefix_of(value: Any) -> Any:
    """Return ``value``, the setting KEY_PREFIX; a dotted path is replaced with the function that it names.

    Raises ``ValueError`` for a dotted path that names no function.
    """
    if not (isinstance(value, str) and _DOTTED_PATH.fullmatch(value)):
        return value
    try:
        found = import_string(value)
    except ImportError as error:
        found = error
    if not callable(found):
        raise ValueError(
            f"KEY_PREFIX {value!r} is the dotted path of no function ({found!r:.200}). A prefix that is a text has no "
            "dots between words: use '-' or ':', or lambda: 'the.prefix'"
        )
    return found


def _dispatch(backend: Backend, event: Event) -> None:
    announce(event, type(backend))
    if backend.history or len(event_queue.listeners) > 1:
        event_queue.record_event(event, backend)
    if event.kind == "released" and event.reason != HANDED_OFF:
        warn_of_early_release(event)


def _record_duplicate(*, conflict: Any, **_kwargs: Any) -> None:
    event_queue.record(EventRecord(time.time(), "duplicate", conflict.task, reason=conflict.where))


task_duplicate.connect(_record_duplicate, dispatch_uid="django_redlock.backend_registry")
event_queue.subscribe("history", minutes.write)


class Locks(Mapping[str, Backend]):
    """The configured backends by alias. Threads of a process share a backend, unlike Django's database connections."""

    def __init__(self) -> None:
        self._built: dict[str, Backend] = {}
        self.in_use: WeakSet[Backend] = WeakSet()  # also of former settings: handles keep their backend

    def __getitem__(self, alias: str) -> Backend:
        """Return the backend of ``alias``. Raises ``ImproperlyConfigured`` if the entry is missing or bad."""
        backend = self._built.get(alias)
        if backend is not None:
            return backend
        configured = configuration()
        if alias not in configured:
            known = ", ".join(map(repr, configured)) or "none is configured"
            hint = f" {WHAT_TO_WRITE}" if alias == DEFAULT_ALIAS else ""
            raise ImproperlyConfigured(f"there is no lock backend {alias!r} in REDLOCK (aliases: {known}).{hint}")
        # Two threads may both build the backend; the first result stays. Importing under a mutex could deadlock.
        backend = self._built.setdefault(alias, build(alias, configured[alias]))
        self.in_use.add(backend)
        return backend

    def __contains__(self, alias: object) -> bool:
        return alias in configuration()

    def __iter__(self) -> Iterator[str]:
        return iter(configuration())

    def __len__(self) -> int:
        return len(configuration())

    def reset(self) -> None:
        """Close all backends. The next use reads the settings again."""
        built, self._built = self._built, {}
        for backend in built.values():
            backend.close()


locks = Locks()


def _changed(*, setting: str, **_kwargs: Any) -> None:
    if setting in ("REDLOCK", "CACHES"):
        locks.reset()


setting_changed.connect(_changed, dispatch_uid="django_redlock.backend_registry")
