"""Checks the arguments of ``single_instance_task`` when a task of ``django.tasks`` is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from ..single_instance.conflicts import Conflict
from ..single_instance.modes import MODES, TaskOptions, options

TaskMode = Literal["until_executed", "while_executing"]
Action = Literal["skip", "log", "raise", "wait"] | Callable[[Conflict], Any]

DECIDED = ("skip", "log", "raise")  # the actions that don't wait


def checked(*, mode: Any, limit: Any, on_conflict: Any, **given: Any) -> TaskOptions:
    """Check the arguments of ``single_instance_task``, and return them as `TaskOptions`.

    ``given``: the further arguments. Raises ``TypeError`` and ``ValueError`` for invalid arguments, and ``ValueError``
    for values that only Celery tasks support.
    """
    only_celery = "is for Celery tasks only; with django.tasks"
    if mode in MODES and mode not in ("until_executed", "while_executing"):
        raise ValueError(f"mode={mode!r} {only_celery}, use 'until_executed' or 'while_executing'")
    if any(
        word in ("retry", "replace") for word in (on_conflict if isinstance(on_conflict, tuple) else (on_conflict,))
    ):
        raise ValueError(f"on_conflict={on_conflict!r} {only_celery}, use 'skip', 'log', 'raise' or a callable")
    chosen = options(mode=mode, limit=limit, on_conflict=on_conflict, conflict_retries=None, **given)
    if chosen.mode.at_submit and chosen.at_submit == "wait":
        raise ValueError("on_conflict='wait' would block enqueue(): use a pair, such as on_conflict=('skip', 'wait')")
    if chosen.mode.at_submit and limit != 1:
        raise ValueError(f"mode={mode!r} with limit={limit} {only_celery}, use limit=1 or mode='while_executing'")
    return chosen
