"""For those who test.

Code that locks: `override_locks`, `assert_locked`, `assert_not_locked`, `Clock` and `Rehearsal`, with any test runner,
and the pytest plugin's fixtures ``redlock``, ``redlock_dummy`` and ``redlock_clock``.

A backend of one's own: the suite that every backend of this package passes, in `conformance`.
"""

from __future__ import annotations

import sys
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asserts import assert_locked, assert_not_locked
    from .clock import Clock
    from .fake_locks import Rehearsal
    from .override import override_locks

__all__ = ["Clock", "Rehearsal", "assert_locked", "assert_not_locked", "override_locks"]

_HOMES = {
    "Clock": "clock",
    "Rehearsal": "fake_locks",
    "assert_locked": "asserts",
    "assert_not_locked": "asserts",
    "override_locks": "override",
}


def __getattr__(name: str) -> Any:
    # The pytest plugin is loaded in projects that use none of this: it must not bring Django along.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "pytest" in sys.modules:  # plain asserts of the suite say what they compared, also in other people's test runs
    # With all that is in the packages among them, which `walk_packages` would import.
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))
