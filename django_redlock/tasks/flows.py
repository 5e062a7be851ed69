"""What a task of ``django.tasks`` adds to `submit_flow` and `body_flow`: its call gets its id from the task backend.

``enqueue()`` writes the queued record with a provisional id, and the final id only after it has sent the call.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError
from ..single_instance.body_flow import BodyRun
from ..single_instance.call import UNNAMED, TaskCall
from ..single_instance.conflicts import Conflict, conflict_of
from ..single_instance.submit_flow import submit_flow
from ..single_instance.transitions import rename
from ..transactions import after_rollback
from .call_lock import DjangoTaskLock
from .framework import duplicate_of

# Name and provisional id of the call that this context is enqueuing. ImmediateBackend runs the body within.
enqueuing: ContextVar[tuple[str, str]] = ContextVar("redlock_enqueuing", default=("", ""))


def enqueue_flow(lock: DjangoTaskLock, call: TaskCall, task: Any, args: Any, kwargs: Any) -> Flow[Any]:
    """Write the record of the queued call and enqueue the call, unless another call holds the lock.

    Returns the ``TaskResult``. Raises ``LockNotAcquired`` for a duplicate with ``on_conflict="raise"``,
    ``LockUnavailable`` when the store is unavailable.
    """
    result = yield from submit_flow(lock, call)
    if isinstance(result, Conflict):
        return duplicate_of(task, args, kwargs, result)
    if call.mode.at_submit:
        yield from _rename_flow(call._replace(task_id=result.id), call.task_id)
    return result


def cancel_after_rollback(lock: DjangoTaskLock, call: TaskCall, result: Any) -> None:
    """Cancel the call ``result`` if its transaction is rolled back. For task backends whose queue is a table."""
    if call.mode.at_submit and (row := getattr(result, "db_result", None)) is not None:
        named = call._replace(task_id=result.id)
        after_rollback(row._state.db, partial(_cancel_both, lock, call, named))


def _cancel_both(lock: DjangoTaskLock, call: TaskCall, named: TaskCall) -> None:
    """Cancel a call. Its record has the provisional id in ``call`` or, after the renaming, the final id in ``named``.

    Both ids are tried, because the reply to the renaming may have been lost.
    """
    lock.cancel(call)
    lock.cancel(named)


def _rename_flow(call: TaskCall, task_id: str) -> Flow[None]:
    """Give the record with the provisional id ``task_id`` the task id of ``call``. Errors are logged and not raised.

    If a worker has started the call before, it has renamed the record already, and this flow changes nothing.
    """
    try:
        yield from rename(call, task_id)
    except LockError as error:
        logger.warning("task %s[%s]: its record keeps a provisional id: %s", call.task, call.task_id, error)


class DjangoRun(BodyRun):
    """One run of a body. ``known``: whether the worker knows the call's id."""

    same_delivery = False  # the worker doesn't know the delivery id of the record

    def __init__(self, lock: DjangoTaskLock, name: str, task_id: str) -> None:
        super().__init__(lock, lock.call(name, task_id))
        self.is_named = bool(task_id)

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        """Acquire the lock of the body.

        The body may start before ``enqueue()`` has written the final id, and the call's own record then refuses it. So
        a queued record with a provisional id counts as the call's own: it gets the task id of the call, and the lock is
        acquired again. If the worker doesn't know the call's id, any queued record counts as the call's own.
        """
        call = self.call
        if not call.mode.at_submit:
            return (yield from handle.acquire_flow(wait))
        name, provisional = enqueuing.get()
        if name == call.name:
            yield from rename(call, provisional)
        outcome: Hold | Refusal = yield from handle.acquire_flow(0.0)
        if isinstance(outcome, Refusal):
            conflict = conflict_of(call, "start", outcome)
            taken = conflict.state == "queued" and (not conflict.holder or not self.is_named)
            if taken:
                yield from rename(call, conflict.holder or UNNAMED)
            if taken or wait:
                outcome = yield from handle.acquire_flow(wait)
        return outcome

    def refused_flow(self, conflict: Conflict, action: str, failure: Exception) -> Flow[Any]:
        """Cancel the call, if it was queued and a task of another mode with the same key runs."""
        if self.call.mode.at_submit:
            yield from _rename_flow(self.call, UNNAMED)  # it may have started before enqueue() has renamed the record
        return (yield from super().refused_flow(conflict, action, failure))
