"""Refuses the options and settings of celery-once and celery-singleton, with the name of the option to use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.events import logger

OLD_OPTIONS = {
    "once": "mode, key or unique_on, queue_ttl and on_conflict on the task",
    "raise_on_duplicate": 'on_conflict="raise" on the task',
    "lock_expiry": "queue_ttl on the task",
}
_OLD_SETTINGS = {
    "ONCE": ("celery_once", "REDLOCK, and REDLOCK_TASKS for the defaults of tasks"),
    "singleton_backend_url": ("celery_singleton", 'REDLOCK["default"]["LOCATION"]'),
    "singleton_key_prefix": ("celery_singleton", 'REDLOCK["default"]["KEY_PREFIX"]'),
    "singleton_lock_expiry": ("celery_singleton", 'REDLOCK_TASKS = {"queue_ttl": …}'),
    "singleton_raise_on_duplicate": ("celery_singleton", 'REDLOCK_TASKS = {"on_conflict": "raise"}'),
}


def refuse_old_options(given: Iterable[str], where: str) -> None:
    """Raise ``TypeError`` for an option of celery-once or celery-singleton. ``where``: the beginning of the text."""
    for name in given:
        if name in OLD_OPTIONS:
            raise TypeError(f"{where} has no option {name!r}: use {OLD_OPTIONS[name]}")


def warn_of_old_settings(app: Any, loaded: Iterable[str]) -> None:
    """Log a warning for each setting of an old library that is not in use: its package is not among ``loaded``."""
    for name, (package, new) in _OLD_SETTINGS.items():
        if package not in loaded and app.conf.get(name):
            logger.warning("Celery setting %s has no effect on django_redlock: use %s", name, new)
