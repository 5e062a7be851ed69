"""``locks["alias"]``: one backend for each alias of the ``REDLOCK`` setting and each process, built when first used."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypedDict, Unpack

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from .backends.base import Backend
from .client.redact import redact
from .core.event_queue import EventRecord, event_queue
from .core.events import Event
from .core.locks.lock import Lock
from .core.options import OnLost
from .core.values import Seconds
from .errors import LockUnavailable
from .history.recorder import recorder
from .signals import announce, task_duplicate
from .transactions import CommitLock, warn_of_early_release

DEFAULT_ALIAS = "default"
REDIS_BACKEND = "django_redlock.backends.redis.RedisBackend"
WHAT_TO_WRITE = (
    f'Add to your settings: REDLOCK = {{"default": {{"BACKEND": "{REDIS_BACKEND}", '
    '"LOCATION": "redis://127.0.0.1:6379/0"}}'
)
_KEYS = ("BACKEND", "LOCATION", "KEY_PREFIX", "OPTIONS")


class LockKwargs(TypedDict, total=False):
    """The options of a backend's ``lock()``. What they mean, and what is wrong with a value, is said there."""

    ttl: Seconds | None
    blocking: bool
    blocking_timeout: Seconds | None
    auto_renew: bool | None
    max_hold: Seconds | None
    min_hold: Seconds | None
    fair: bool
    fencing: bool
    owner: str | Mapping[str, Any] | None
    on_lost: OnLost


def check_options(where: str, options: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for an option that ``lock()`` doesn't have: long before it would be called."""
    if unknown := [name for name in options if name not in LockKwargs.__annotations__]:
        known = ", ".join(LockKwargs.__annotations__)
        raise TypeError(f"{where}() has no option {', '.join(map(repr, unknown))} (options of a lock: {known})")


def configuration() -> Mapping[str, Any]:
    """The ``REDLOCK`` setting; without one, a ``default`` on ``CACHES["default"]`` where that is a django-redis cache.

    Raises ``ImproperlyConfigured`` when it is no dict.
    """
    configured = getattr(settings, "REDLOCK", None)
    if configured is None:
        cache = getattr(settings, "CACHES", {}).get("default", {})
        on_cache = str(cache.get("BACKEND", "")).startswith("django_redis.")
        return {DEFAULT_ALIAS: {"BACKEND": REDIS_BACKEND, "LOCATION": "cache:default"}} if on_cache else {}
    if not isinstance(configured, Mapping):
        raise ImproperlyConfigured(f"REDLOCK is a dict of aliases, not {redact(configured)!r}. {WHAT_TO_WRITE}")
    return configured


def backend_class(alias: str, entry: Any) -> Callable[..., Backend]:
    """What the BACKEND of one entry of the setting names. Raises ``ImproperlyConfigured`` with what is wrong in it."""
    where = f"REDLOCK[{alias!r}]"
    if not isinstance(entry, Mapping) or "BACKEND" not in entry:
        raise ImproperlyConfigured(f"{where} is a dict with a BACKEND, not {redact(entry)!r}. {WHAT_TO_WRITE}")
    if unknown := [str(key) for key in entry if key not in _KEYS]:
        raise ImproperlyConfigured(f"{where} has unknown keys: {', '.join(unknown)} (known: {', '.join(_KEYS)})")
    try:
        found = import_string(entry["BACKEND"])
    except (ImportError, AttributeError, ValueError) as error:
        raise ImproperlyConfigured(f"{where}: BACKEND {entry['BACKEND']!r} can't be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise ImproperlyConfigured(f"{where}: BACKEND {entry['BACKEND']!r} is no lock backend")
    return found


def build(alias: str, entry: Any) -> Backend:
    """The backend that one entry of the setting describes. Raises ``ImproperlyConfigured`` with what is wrong in it.

    Connects nowhere. ``LockUnavailable`` where the process can open no more files.
    """
    make = backend_class(alias, entry)
    where = f"REDLOCK[{alias!r}]"
    options = entry.get("OPTIONS") or {}
    if not isinstance(options, Mapping):
        raise ImproperlyConfigured(f"{where}: OPTIONS is a dict, not {options!r}")
    prefix = {"key_prefix": entry["KEY_PREFIX"]} if "KEY_PREFIX" in entry else {}
    try:
        backend = make(entry.get("LOCATION", ""), **{**options, **prefix})
    except LockUnavailable:  # that is no fault of the settings
        raise
    # Of the many things that a bad value can raise, an ImproperlyConfigured (a cache alias that doesn't exist) is one.
    except Exception as error:
        raise ImproperlyConfigured(f"{where}: {error}{_known_options(make, error)}") from error
    backend.alias = alias
    backend.hook = partial(_dispatch, backend)
    return backend


def _known_options(make: Any, error: Exception) -> str:
    """What a backend's class has instead of an option that it hasn't; ``""`` where the error is another."""
    if not (isinstance(error, TypeError) and "unexpected keyword argument" in str(error)):
        return ""
    makers = [vars(each)["__init__"] for each in make.__mro__[:-1] if "__init__" in vars(each)]
    parameters = [each for maker in makers for each in inspect.signature(maker).parameters.values()]
    known = dict.fromkeys(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
    return f" (options of {make.__name__}: {', '.join(known)})"


def _dispatch(backend: Backend, event: Event) -> None:
    announce(event, type(backend))
    if backend.history or len(event_queue.listeners) > 1:
        event_queue.record_event(event, backend)
    if event.kind == "released":
        warn_of_early_release(event)


def _record_duplicate(*, conflict: Any, **_kwargs: Any) -> None:
    event_queue.record(EventRecord(time.time(), "duplicate", conflict.task, reason=conflict.where))


task_duplicate.connect(_record_duplicate, dispatch_uid="django_redlock.handler")
event_queue.subscribe("history", recorder.observe)


class Locks(Mapping[str, Backend]):
    """The configured backends by alias. Unlike Django's connections they are shared by all threads of the process."""

    def __init__(self) -> None:
        self._built: dict[str, Backend] = {}

    def __getitem__(self, alias: str) -> Backend:
        """The backend of ``alias``. Raises ``ImproperlyConfigured`` when it is not configured, or wrongly."""
        backend = self._built.get(alias)
        if backend is not None:
            return backend
        configured = configuration()
        if alias not in configured:
            known = ", ".join(map(repr, configured)) or "none is configured"
            hint = f" {WHAT_TO_WRITE}" if alias == DEFAULT_ALIAS else ""
            raise ImproperlyConfigured(f"there is no lock backend {alias!r} in REDLOCK (aliases: {known}).{hint}")
        # No lock of ours is held while modules of others are imported. Of two that build at once, one is kept.
        return self._built.setdefault(alias, build(alias, configured[alias]))

    def __contains__(self, alias: object) -> bool:
        return alias in configuration()

    def __iter__(self) -> Iterator[str]:
        return iter(configuration())

    def __len__(self) -> int:
        return len(configuration())

    def reset(self) -> None:
        """Forget what was built: the next use reads the settings anew."""
        built, self._built = self._built, {}
        for backend in built.values():
            backend.close()


locks = Locks()


def lock(
    name: str,
    using: str = DEFAULT_ALIAS,
    *,
    release_on_commit: bool | str = False,
    **options: Unpack[LockKwargs],
) -> Lock:
    """A lock on the backend ``using``: short for ``locks[using].lock(name, **options)``.

    ``release_on_commit``: released within a database transaction, it is kept until that is committed or rolled back
    (``True``: of the default database; or a database's alias). In coroutines there are no transactions, and so this
    makes no difference there.

    Raises ``ImproperlyConfigured`` for an alias that is not configured, ``TypeError`` for an option that doesn't exist,
    and what ``lock()`` of the backend raises.
    """
    check_options("lock", options)
    made = locks[using].lock(name, **options)
    if not release_on_commit:
        return made
    return CommitLock.like(made, DEFAULT_DB_ALIAS if release_on_commit is True else release_on_commit)


def _changed(*, setting: str, **_kwargs: Any) -> None:
    if setting in ("REDLOCK", "CACHES"):
        locks.reset()


setting_changed.connect(_changed, dispatch_uid="django_redlock.handler")
