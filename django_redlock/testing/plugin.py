"""The pytest plugin. It imports Django and the backends only when a fixture is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .clock import Clock
    from .fake_locks import Rehearsal
    from .tasks import CapturedTasks


@pytest.fixture
def redlock() -> Iterator[Rehearsal]:
    """Keeps all locks of the project in memory for one test. Yields a `Rehearsal`, which can make locks fail."""
    if not _has_django():
        from .fake_locks import Rehearsal

        yield Rehearsal()  # without settings to override, the test makes a backend with `Rehearsal.backend`
        return
    from .override import override_locks

    with override_locks() as rehearsal:
        yield rehearsal


@pytest.fixture
def redlock_dummy() -> Iterator[Rehearsal]:
    """Replaces all locks of the project for one test by locks that are always granted. Yields a `Rehearsal`."""
    from .override import override_locks

    with override_locks("dummy") as rehearsal:
        yield rehearsal


@pytest.fixture
def redlock_clock(redlock: Rehearsal) -> Clock:
    """The clock of the locks in memory. To let 11 seconds pass: ``redlock_clock.advance(11)``."""
    return redlock.clock


@pytest.fixture
def redlock_tasks(redlock: Rehearsal) -> Iterator[CapturedTasks]:  # noqa: ARG001  (records are kept in memory)
    """Captures calls of Celery tasks instead of sending them. Duplicates are refused. All locks are kept in memory.

    Yields the `CapturedTasks`.
    """
    from .tasks import capture_tasks

    with capture_tasks() as captured:
        yield captured


def _has_django() -> bool:
    conf = sys.modules.get("django.conf")
    return bool(os.environ.get("DJANGO_SETTINGS_MODULE") or (conf and conf.settings.configured))
