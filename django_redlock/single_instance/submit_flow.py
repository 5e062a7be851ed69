"""Submits a call of a task: `submit_flow`, which Celery and ``django.tasks`` share."""

from __future__ import annotations

from typing import Any, cast

from ..core.algorithms.single_node import SingleNode
from ..core.events import logger
from ..core.flow.requests import Flow, Sleep
from ..core.values import Refusal
from ..errors import LockUnavailable
from .call import TaskCall
from .call_drivers import CALL
from .conflicts import AT_SUBMIT, Conflict, conflict_of, decide, notify_duplicate
from .task_lock import TaskLock
from .transitions import submit

_POLL_SECONDS = 0.05


def submit_flow(
    lock: TaskLock, call: TaskCall, *, own: bool = False, must_send: bool = False, must_survive: bool = False
) -> Flow[Any]:
    """Write the record of the queued call, and send the call. Returns the framework's result, or a `Conflict`.

    ``own``: the call is a retry by the task that owns the record. ``must_send``: the call is sent even if it is
    refused, and a worker decides when it starts the body. ``must_survive``: it is sent even if the store is down.
    Raises ``LockNotAcquired`` for a duplicate with the action "raise" or "wait", ``LockUnavailable``.
    """
    if not call.mode.at_submit:
        return (yield CALL)
    try:
        conflict = yield from _record_flow(lock, call, own, must_send)
    except LockUnavailable as error:
        if not (lock.options.runs_unprotected or must_survive):
            if error.unconfirmed:  # its record would make every later call a duplicate of a call that was not sent
                yield from lock.cancel_flow(call)
            raise
        logger.warning("task %s[%s] is sent without a record: %s", call.task, call.task_id, error)
        return (yield CALL)
    if conflict is not None and not must_send:
        return conflict
    try:
        return (yield CALL)
    except BaseException:
        if conflict is None:
            yield from lock.cancel_flow(call)
        raise


def _record_flow(lock: TaskLock, call: TaskCall, own: bool, must_send: bool) -> Flow[Conflict | None]:
    """Write the record of the queued call. Returns ``None``, or the `Conflict` of a call that was refused."""
    store, options = lock.store, lock.options
    algorithm, on_conflict = cast("SingleNode", store.algorithm), options.actions[0]
    wait = cast("float", options.conflict_timeout)
    deadline = store.clock() + wait
    action: Any = on_conflict
    while True:
        refusal: Refusal | None = yield from submit(call, own, action == "replace", algorithm)
        if refusal is None:
            return None
        conflict = conflict_of(call, "submit", refusal)
        if must_send:
            return conflict
        if callable(action):
            action = decide(on_conflict, conflict, AT_SUBMIT)
            if action == "replace":
                continue
        if action != "wait" or refusal.final or store.clock() > deadline:
            break
        yield Sleep(min(_POLL_SECONDS, wait))
    notify_duplicate(conflict, action == "log")
    if action in ("raise", "wait"):
        raise conflict.error()
    return conflict
