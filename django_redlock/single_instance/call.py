"""A call of a task: its mode, the names and times in its record, and the `Conflict` with another call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as encode
from typing import Any, Literal, NamedTuple

from ..core.events import logger
from ..core.keys import Keys
from ..core.owner import Owner, clean, describe_owner
from ..core.values import Refusal
from ..errors import LockNotAcquired
from ..signals import task_duplicate

# The first character of a provisional task id. A record has one until a backend of ``django.tasks`` has given the call
# its id. No id of a task backend begins with it.
UNNAMED = "?"

# The effect of a body's end on its record. "ended": remember the delivery as ended. "requeued": queue the call again,
# because the broker will deliver the message again. "removed": only remove the record.
Ending = Literal["ended", "requeued", "removed"]

ModeName = Literal["until_executed", "until_executing", "while_executing", "until_and_while_executing", "until_expired"]


class Mode(NamedTuple):
    """A mode of ``single_instance_task``: the states ("queued", "running") in which one call refuses another.

    A running body has a lease in every mode, so that a redelivered message does not run at the same time.
    """

    at_submit: str  # states in which a call is refused at submit; "": never
    at_start: str  # the same for the start of the body
    until_expiry: bool = False  # the call counts as queued until its ttl has passed, even after its body has ended


MODES: dict[str, Mode] = {
    "until_executed": Mode("queued running", "queued running"),
    "until_executing": Mode("queued", "queued"),
    "while_executing": Mode("", "running"),
    "until_and_while_executing": Mode("queued", "running"),
    "until_expired": Mode("queued", "queued", until_expiry=True),
}


def new_delivery_id() -> str:
    """Return a delivery id in hex: 4 bytes with the time in seconds, then 8 random bytes."""
    return f"{int(time.time()):08x}{os.urandom(8).hex()}"


class TaskCall(NamedTuple):
    """One call of a task, with its lock. Times are seconds."""

    name: str  # of the lock
    keys: Keys
    task: str
    task_id: str
    delivery_id: str  # identity of the message; a redelivered message keeps it, a retry gets a new one
    mode: Mode
    limit: int
    queued_ttl: float  # time to live of a queued record from now
    done_ttl: float  # time for which the store remembers that this delivery has ended
    cluster: bool = False  # the records are in a Redis Cluster

    def owner(self, ttl: float = 0.0) -> bytes:
        """Return the description of the running thread or asyncio task, with the call's task and id, as JSON.

        ``ttl``: the lease of the running body in seconds; 0 if there is none.
        """
        own = f',"label":{encode(clean(self.task))},"task_id":{encode(clean(self.task_id))}}}'
        return describe_owner(None, ttl)[:-1] + own.encode()


# ── conflicts ────────────────────────────────────────────────────────────────────────────────────

Where = Literal["submit", "start"]

AT_SUBMIT = ("skip", "log", "raise", "wait", "replace")
AT_START = ("skip", "log", "raise", "wait", "retry")
ACTIONS = (*dict.fromkeys(AT_SUBMIT + AT_START),)


class Conflict(NamedTuple):
    """A refused call of a task, and the call that holds its lock.

    ``task``, ``task_id`` and ``key`` (the lock's name) belong to the refused call. ``where``: "submit" if the sender
    was refused, "start" if a worker was. ``holder``: the task id of the call that holds the lock, ``""`` if unknown.
    ``state``: the state of that call, "queued" or "running"; "held" if the store keeps no records of tasks; "replaced"
    if a later call has replaced the refused one. ``remaining``: seconds until the record or lease of that call expires
    unless it is renewed.
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
    """Return the `Conflict` for ``refusal``, the store's answer to ``call``. ``where``: "submit" or "start".

    ``Conflict.holder`` is empty if the call that holds the lock has no task id yet, because it is being enqueued.
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
    """Return the value that a skipped call has as its result in a worker: texts that every serializer supports."""
    return {"redlock": "duplicate", "key": conflict.key, "holder": conflict.holder}


def is_duplicate(result: Any) -> bool:
    """Return whether the call was a duplicate.

    ``result``: the result of ``apply_async()`` or ``enqueue()``, or the task's return value.
    """
    if isinstance(result, dict):
        return result.get("redlock") == "duplicate"
    return bool(getattr(result, "duplicate", False))
