"""Another one is in the way: what is known of it, and the words for what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ..core.events import logger
from ..core.owner import Owner
from ..core.values import Refusal
from ..errors import LockNotAcquired
from ..signals import task_duplicate

Where = Literal["submit", "start"]

AT_SUBMIT = ("skip", "log", "raise", "wait", "replace")
AT_START = ("skip", "log", "raise", "wait", "retry")


class Conflict(NamedTuple):
    """A task that was refused. ``holder`` is the id of the task in the way, ``state`` what that is doing ("queued" or
    "running"), ``remaining`` the seconds that its record lasts unless it is renewed, ``where`` who found out: the
    sender ("submit") or the worker ("start").
    """

    task: str
    task_id: str
    key: str
    where: Where
    holder: str
    state: str
    remaining: float

    def error(self) -> LockNotAcquired:
        """The error for ``on_conflict="raise"``."""
        reason = f"task {self.task}[{self.task_id}] is a duplicate of {self.holder or 'another'}, which is {self.state}"
        return LockNotAcquired(self.key, reason, self.remaining, self.holder)


OnConflict = Literal["skip", "log", "raise", "wait", "retry", "replace"] | Callable[[Conflict], Any]


def conflict_of(task: str, task_id: str, key: str, where: Where, refusal: Refusal) -> Conflict:
    """What a refusal says of the one in the way."""
    holder = Owner.parse(refusal.holder).extra
    return Conflict(
        task, task_id, key, where, str(holder.get("task_id", "")), str(holder.get("state", "held")), refusal.remaining
    )


def decide(action: OnConflict, conflict: Conflict, known: tuple[str, ...]) -> str:
    """The word for what to do: a callable is asked, and what it answers is one of the words, or nothing for "skip"."""
    word = action(conflict) if callable(action) else action
    word = word or "skip"
    if word not in known:
        raise ValueError(f"on_conflict of {conflict.task} answered {word!r} at {conflict.where}; known: {known}")
    return str(word)


def notify_duplicate(conflict: Conflict, warn: bool = False) -> None:
    """Log the duplicate, and send the signal `task_duplicate`."""
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
    """The result of a task that a worker skipped: plain data, so that every serializer carries it."""
    return {"redlock": "duplicate", "key": conflict.key, "holder": conflict.holder}


def flag_result(result: Any, duplicate: bool) -> Any:
    """``result`` of ``apply_async``, which says whether it is that of a duplicate."""
    result.duplicate = duplicate
    return result


def is_duplicate(result: Any) -> bool:
    """Whether ``result`` (of ``apply_async``, or what its ``get()`` returned) is that of a duplicate."""
    if isinstance(result, dict):
        return result.get("redlock") == "duplicate"
    return bool(getattr(result, "duplicate", False))
