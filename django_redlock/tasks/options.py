"""Checks the options of ``single_instance_task`` for a task of ``django.tasks``."""

from __future__ import annotations

from typing import Any

from ..single_instance.modes import MODES
from ..single_instance.options import OPTIONS, TaskOptions, checked_options

CELERY_ONLY = ("conflict_retries",)
_KNOWN = tuple(name for name in OPTIONS if name not in CELERY_ONLY)


def checked(given: dict[str, Any]) -> TaskOptions:
    """Return the options ``given``, checked.

    Raises ``TypeError`` and ``ValueError`` for invalid options, and ``ValueError`` for values that only Celery tasks
    support.
    """
    chosen = checked_options(given, _KNOWN)
    only_celery = "is for Celery tasks only; with django.tasks"
    mode, on_conflict = chosen.mode, chosen.on_conflict
    if mode in MODES and mode not in ("until_executed", "while_executing"):
        raise ValueError(f"mode={mode!r} {only_celery}, use 'until_executed' or 'while_executing'")
    words = on_conflict if isinstance(on_conflict, tuple) else (on_conflict,)
    if any(word in ("retry", "replace") for word in words):
        raise ValueError(f"on_conflict={on_conflict!r} {only_celery}, use 'skip', 'log', 'raise' or a callable")
    if chosen.states.at_submit and chosen.actions[0] == "wait":
        raise ValueError("on_conflict='wait' would block enqueue(): use a pair, such as on_conflict=('skip', 'wait')")
    if chosen.states.at_submit and chosen.limit != 1:
        raise ValueError(
            f"mode={mode!r} with limit={chosen.limit} {only_celery}, use limit=1 or mode='while_executing'"
        )
    return chosen
