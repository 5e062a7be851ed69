"""`override_locks` replaces all locks of a Django project by locks in memory, or locks without effect, for one test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.test.utils import TestContextDecorator

from ..backend_registry import DEFAULT_ALIAS, build, configuration, key_prefix_of, locks
from ..backends.base import Backend
from ..backends.locmem import LocMemBackend
from .fake_locks import FakeDummy, FakeLocMem, Rehearsal

FAKES: Mapping[str, type] = {"locmem": FakeLocMem, "dummy": FakeDummy}
ABSENT = object()
KEPT_OPTIONS = ("ttl", "max_ttl", "auto_renew", "blocking_timeout")  # projects may depend on these


class override_locks(TestContextDecorator):  # noqa: N801  (as Django's override_settings)
    """Replace the backends of all aliases of ``REDLOCK`` for one test.

    - ``kind`` ("locmem"): "locmem" for locks in memory, "dummy" for locks that are always granted.
    - ``kwarg_name`` (``None``): keyword argument by which a decorated function gets the `Rehearsal`.
    - ``attr_name`` (``None``): attribute by which a decorated test case gets the `Rehearsal`.

    Works as a context manager, and as a decorator of functions, coroutine functions and ``unittest.TestCase`` classes.
    Each test of a class gets separate locks. ``with`` returns a `Rehearsal`. The options ``ttl``, ``max_ttl``,
    ``auto_renew`` and ``blocking_timeout`` keep the values of the settings. Handles that were created before, such as
    ``LOCK = lock("x")`` in a module, are also replaced. Raises ``ValueError`` for an unknown ``kind``.
    """

    def __init__(
        self,
        kind: Literal["locmem", "dummy"] = "locmem",
        *,
        attr_name: str | None = None,
        kwarg_name: str | None = None,
    ) -> None:
        if kind not in FAKES:
            raise ValueError(f"locks are overridden by {' or '.join(map(repr, FAKES))}, not {kind!r}")
        super().__init__(attr_name, kwarg_name)
        self._kind = kind
        self._overridden: list[tuple[Any, Any, dict[str, Any]]] = []
        self._replaced: list[list[tuple[Backend, type[Backend], dict[str, Any]]]] = []

    def __enter__(self) -> Rehearsal:  # type: ignore[override]
        return self.enable()

    def enable(self) -> Rehearsal:
        """Replace the backends, as entering ``with`` does. Returns a `Rehearsal`."""
        rehearsal = Rehearsal()
        backend = f"{FAKES[self._kind].__module__}.{FAKES[self._kind].__qualname__}"
        entries = {
            alias: {
                "BACKEND": backend,
                "LOCATION": f"{rehearsal.place} {alias}",
                **_key_prefix(entry),
                "OPTIONS": {**_times(alias, entry), "rehearsal": rehearsal},
            }
            for alias, entry in {DEFAULT_ALIAS: None, **configuration()}.items()
        }
        # Not with override_settings: pytest-django's fixture ``settings`` may restore its settings after `disable`.
        holder = settings._wrapped  # type: ignore[misc]
        self._overridden.append((holder, vars(holder).get("REDLOCK", ABSENT), entries))
        try:
            _configure(holder, entries, enter=True)
        except BaseException:
            _configure(*self._overridden.pop()[:2], enter=False)
            raise
        self._replaced.append([_become_fake(backend) for backend in list(locks.in_use) if backend.alias in entries])
        return rehearsal

    def disable(self) -> None:
        """Restore the backends of the settings, as leaving ``with`` does."""
        for backend, kind, attributes in self._replaced.pop():
            backend.__class__, backend.__dict__ = kind, attributes
        holder, before, entries = self._overridden.pop()
        _configure(holder, before, enter=False)
        for alias, entry in entries.items():
            if isinstance(backend := build(alias, entry), LocMemBackend) and not backend.held():
                backend.clear()


def _configure(holder: Any, entries: Any, *, enter: bool) -> None:
    """Set ``REDLOCK`` to ``entries`` in ``holder``, and send ``setting_changed``, as Django's override_settings does.

    ``holder``: Django's ``settings._wrapped``. ``entries``: `ABSENT` removes the setting. ``enter``: ``False`` when the
    former setting is restored.
    """
    if entries is ABSENT:
        vars(holder).pop("REDLOCK", None)
    else:
        vars(holder)["REDLOCK"] = entries
    settings._wrapped = settings._wrapped  # type: ignore[misc]  # clears the values that Django has cached
    value = getattr(settings, "REDLOCK", None)
    send = setting_changed.send if enter else setting_changed.send_robust  # at the end each receiver must learn of it
    send(sender=type(holder), setting="REDLOCK", value=value, enter=enter)


def _become_fake(backend: Backend) -> tuple[Backend, type[Backend], dict[str, Any]]:
    """Change ``backend``, which earlier handles refer to, into the fake of its alias. Returns the values to restore."""
    former, fake = (backend, type(backend), vars(backend)), locks[backend.alias]
    backend.__class__, backend.__dict__ = type(fake), vars(fake)
    return former


def _key_prefix(entry: Any) -> dict[str, Any]:
    prefix = key_prefix_of(entry["KEY_PREFIX"]) if isinstance(entry, Mapping) and "KEY_PREFIX" in entry else None
    return {"KEY_PREFIX": prefix} if isinstance(prefix, str) else {}


def _times(alias: str, entry: Any) -> dict[str, Any]:
    if entry is None:
        return {}
    try:
        backend = build(alias, entry)
    except ImproperlyConfigured:  # for example an address that only resolves in production
        return {}
    backend.close()
    return {name: getattr(backend, name) for name in KEPT_OPTIONS}
