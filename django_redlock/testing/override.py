"""`override_locks` replaces all locks of a Django project by locks in memory, or locks without effect, for one test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.test.utils import TestContextDecorator, override_settings

from ..backend_registry import DEFAULT_ALIAS, build, configuration, locks
from ..backends.locmem import LocMemBackend
from .fake_locks import FakeDummy, FakeLocMem, Rehearsal

KINDS: Mapping[str, type] = {"locmem": FakeLocMem, "dummy": FakeDummy}
KEPT_OPTIONS = ("ttl", "max_ttl", "auto_renew", "blocking_timeout")  # projects may depend on these


class override_locks(TestContextDecorator):  # noqa: N801  (as Django's override_settings)
    """Replace the backends of all aliases of ``REDLOCK`` for one test.

    ``kind``: ``"locmem"`` for locks in memory, ``"dummy"`` for locks that are always granted.

    Works as a context manager, and as a decorator of functions, coroutine functions and ``unittest.TestCase`` classes.
    Each test of a class gets separate locks. ``with`` returns a `Rehearsal`. A decorated function gets the `Rehearsal`
    as the keyword argument ``kwarg_name``, a test case as the attribute ``attr_name``. The options ``ttl``,
    ``max_ttl``, ``auto_renew`` and ``blocking_timeout`` keep the values of the settings. Raises ``ValueError`` for an
    unknown ``kind``.
    """

    def __init__(
        self,
        kind: Literal["locmem", "dummy"] = "locmem",
        *,
        attr_name: str | None = None,
        kwarg_name: str | None = None,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"locks are overridden by {' or '.join(map(repr, KINDS))}, not {kind!r}")
        super().__init__(attr_name, kwarg_name)
        self._kind = kind
        self._overridden: list[override_settings] = []

    def __enter__(self) -> Rehearsal:  # type: ignore[override]
        return self.enable()

    def enable(self) -> Rehearsal:
        """Replace the backends, as entering ``with`` does. Returns a `Rehearsal`."""
        rehearsal = Rehearsal()
        backend = f"{KINDS[self._kind].__module__}.{KINDS[self._kind].__qualname__}"
        entries = {
            alias: {
                "BACKEND": backend,
                "LOCATION": f"{rehearsal.place} {alias}",
                "OPTIONS": {**_times(alias, entry), "rehearsal": rehearsal},
            }
            for alias, entry in {DEFAULT_ALIAS: None, **configuration()}.items()
        }
        overridden = override_settings(REDLOCK=entries)
        overridden.enable()
        self._overridden.append(overridden)
        return rehearsal

    def disable(self) -> None:
        """Restore the backends of the settings, as leaving ``with`` does."""
        for alias in locks:
            if isinstance(backend := locks[alias], LocMemBackend) and not backend.held():
                backend.clear()
        self._overridden.pop().disable()


def _times(alias: str, entry: Any) -> dict[str, Any]:
    if entry is None:
        return {}
    try:
        backend = build(alias, entry)
    except ImproperlyConfigured:  # for example an address that only resolves in production
        return {}
    backend.close()
    return {name: getattr(backend, name) for name in KEPT_OPTIONS}
