"""Helpers for the tests of projects that use this package.

For code that uses locks: `override_locks`, `assert_locked`, `assert_not_locked`, `Clock` and `Rehearsal`. For code that
sends Celery tasks: `capture_tasks`, `assert_enqueued_once` and `assert_not_enqueued`. The helpers work with any test
runner. The pytest plugin has the fixtures ``redlock``, ``redlock_dummy``, ``redlock_clock`` and ``redlock_tasks``.

For backends of your own: `conformance`, the suite that every backend of this package passes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asserts import assert_locked, assert_not_locked
    from .clock import Clock
    from .fake_locks import Rehearsal
    from .override import override_locks
    from .tasks import assert_enqueued_once, assert_not_enqueued, capture_tasks

__all__ = [
    "Clock",
    "Rehearsal",
    "assert_enqueued_once",
    "assert_locked",
    "assert_not_enqueued",
    "assert_not_locked",
    "capture_tasks",
    "override_locks",
]

_HOMES = {
    "Clock": "clock",
    "Rehearsal": "fake_locks",
    "assert_enqueued_once": "tasks",
    "assert_locked": "asserts",
    "assert_not_enqueued": "tasks",
    "assert_not_locked": "asserts",
    "capture_tasks": "tasks",
    "override_locks": "override",
}


def __getattr__(name: str) -> Any:
    # The imports are lazy: pytest loads the plugin in projects that use none of this, and must not load Django there.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "pytest" in sys.modules:  # failed asserts of the suite then show both values
    sys.modules["pytest"].register_assert_rewrite(f"{__name__}.conformance")
