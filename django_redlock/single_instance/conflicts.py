"""Conflicts between calls of a task, and the actions that ``on_conflict`` can name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ..core.events import logger
from ..core.owner import Owner
from ..core.values import Refusal
from ..errors import LockNotAcquired
from ..signals import task_duplicate
from .call import UNNAMED, TaskCall

Where = Literal["submit", "start"]

AT_SUBMIT = ("skip", "log", "raise", "wait", "replace")
AT_START = ("skip", "log", "raise", "wait", "retry")
ACTIONS = (*dict.fromkeys(AT_SUBMIT + AT_START),)


class Conflict(NamedTuple):
    """A refused call of a task, and the call in its way.

    ``task``, ``task_id`` and ``key`` (the lock's name) belong to the refused call. ``where``: "submit" if the sender
    was refused, "start" if a worker was. ``holder``: id of the task in the way, ``""`` if unknown. ``state``: its
    state, "queued" or "running"; "held" if the store keeps no records of tasks; "replaced" if a later call has replaced
    the refused one. ``remaining``: seconds until the record in the way ends unless it is renewed.
    """

    task: str
    task_id: str
    key: str
    where: Where
    holder: str
    state: str
    remaining: float

    def error(self) -> LockNotAcquired:
        """Return the error that ``on_conflict="raise"`` raises."""
        reason = f"task {self.task}[{self.task_id}] is a duplicate of {self.holder or 'another'}, which is {self.state}"
        return LockNotAcquired(self.key, reason, self.remaining, self.holder)


OnConflict = Literal["skip", "log", "raise", "wait", "retry", "replace"] | Callable[[Conflict], Any]


def conflict_of(call: TaskCall, where: Where, refusal: Refusal) -> Conflict:
    """Return the `Conflict` for ``refusal``, the store's answer to ``call``.

    ``where``: "submit" or "start". The id of a task that is being enqueued is not known yet: it is empty.
    """
    extra = Owner.parse(refusal.holder).extra
    task_id, holder = (
        "" if each.startswith(UNNAMED) else each for each in (call.task_id, str(extra.get("task_id", "")))
    )
    return Conflict(call.task, task_id, call.name, where, holder, str(extra.get("state", "held")), refusal.remaining)


def decide(on_conflict: OnConflict, conflict: Conflict, known: tuple[str, ...]) -> str:
    """Return the action for a conflict: ``on_conflict`` itself, or what a callable returns; ``None`` means "skip".

    Raises ``ValueError`` for an action that is not in ``known``.
    """
    action = (on_conflict(conflict) if callable(on_conflict) else on_conflict) or "skip"
    if action not in known:
        raise ValueError(f"on_conflict of {conflict.task} returned {action!r} at {conflict.where}; known: {known}")
    return str(action)


def notify_duplicate(conflict: Conflict, warn: bool = False) -> None:
    """Log the duplicate, and send the signal `task_duplicate`. ``warn``: log as a warning."""
    (logger.warning if warn else logger.info)(
        "task %s[%s] is a duplicate at %s: %s is %s with lock %r, %.1f s left",
        conflict.task,
        conflict.task_id,
        conflict.where,
        conflict.holder or "another",
        conflict.state,
        conflict.key,
        conflict.remaining,
    )
    task_duplicate.send_robust(sender=conflict.task, conflict=conflict)


def duplicate_result(conflict: Conflict) -> dict[str, str]:
    """Return the value that a skipped call has as its result in a worker. Every serializer can carry it."""
    return {"redlock": "duplicate", "key": conflict.key, "holder": conflict.holder}


def is_duplicate(result: Any) -> bool:
    """Return whether the call was a duplicate.

    ``result``: the result of ``apply_async()`` or ``enqueue()``, or the task's return value.
    """
    if isinstance(result, dict):
        return result.get("redlock") == "duplicate"
    return bool(getattr(result, "duplicate", False))
