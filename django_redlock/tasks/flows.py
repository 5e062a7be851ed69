"""Flows for ``enqueue()`` and for the run of a body, shared by a task's blocking and asynchronous methods.

A flow is a generator that yields requests and receives their replies.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

from asgiref.sync import sync_to_async

from ..core.algorithms.replicated import Replicated
from ..core.algorithms.single_node import SingleNode
from ..core.events import logger
from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import Flow
from ..core.flow.steps import Step, StepOutcome
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError, LockUnavailable
from ..single_instance.call import TaskCall
from ..single_instance.conflicts import Conflict, conflict_of, decide, duplicate_result, notify_duplicate
from ..single_instance.ending import end_flow
from ..single_instance.transitions import cancel, rename, submit
from ..transactions import after_rollback
from .call_lock import UNNAMED, DjangoTaskLock
from .framework import duplicate_of
from .options import DECIDED


def run(flow: Flow[Any], lock: DjangoTaskLock) -> Any:
    """Run ``flow`` (a generator of requests), blocking, and return its result.

    A `Step` is called in this thread. The store of ``lock`` performs all other requests.
    """

    def perform(request: Any) -> Any:
        return request.perform() if isinstance(request, Step) else lock.performer.perform(request)

    return drive(flow, perform)


async def arun(flow: Flow[Any], lock: DjangoTaskLock) -> Any:
    """Run ``flow`` on the running event loop, and return its result. ``lock``: as for `run`."""

    async def perform(request: Any) -> Any:
        return await (request.aperform() if isinstance(request, Step) else lock.performer.aperform(request))

    return await adrive(flow, perform)


def enqueue_flow(lock: DjangoTaskLock, task: Any, args: Any, kwargs: Any, send: Step) -> Flow[Any]:
    """Write the record of the queued call and enqueue the call, unless another call holds the lock.

    Returns the ``TaskResult``. ``send``: calls the framework's ``enqueue()``. Raises ``LockNotAcquired`` for a
    duplicate with ``on_conflict="raise"``, ``LockUnavailable`` when the store is unavailable.
    """
    call = lock.call(lock.name(args, kwargs), run_after=task.run_after)
    if not call.mode.at_submit:
        return (yield send).unwrap()
    algorithm = cast("SingleNode | Replicated", lock.store.algorithm)
    try:
        refusal = yield from submit(call, False, False, algorithm)
    except LockUnavailable as error:
        if not lock.options.run_unprotected:
            if error.unconfirmed:  # its record would make every later call a duplicate of a call that was not sent
                yield from _cancel_flow(lock, call)
            raise
        logger.warning("task %s is sent without a record: %s", call.task, error)
        return (yield send).unwrap()
    if isinstance(refusal, Refusal):
        conflict = _conflict(call, "submit", refusal)
        action = decide(lock.options.at_submit, conflict, DECIDED)
        notify_duplicate(conflict, action == "log")
        if action == "raise":
            raise conflict.error()
        return duplicate_of(task, args, kwargs, conflict)
    sent: StepOutcome = yield send
    if sent.error is not None:
        yield from _cancel_flow(lock, call)
    result = sent.unwrap()
    named = call._replace(task_id=result.id)
    if (row := getattr(result, "db_result", None)) is not None:  # the queue is a table of a database
        watch = partial(after_rollback, row._state.db, partial(_cancel_both, lock, call, named))
        (yield Step(watch, sync_to_async(watch))).unwrap()
    yield from _rename_flow(named, call.task_id)
    return result


def _cancel_both(lock: DjangoTaskLock, call: TaskCall, named: TaskCall) -> None:
    """Cancel a call. Its record has the provisional id in ``call`` or, after the renaming, the final id in ``named``.

    Both ids are tried, because the reply to the renaming may have been lost.
    """
    lock.cancel(call)
    lock.cancel(named)


def _cancel_flow(lock: DjangoTaskLock, call: TaskCall, same_delivery: bool = True) -> Flow[None]:
    try:
        yield from cancel(call, same_delivery)
    except LockError as error:
        lock.cancel_later(call, error, same_delivery)


def _rename_flow(call: TaskCall, task_id: str) -> Flow[None]:
    """Give the record with the provisional id ``task_id`` the task id of ``call``. Errors are logged and not raised.

    If a worker has started the call before, it has renamed the record already, and this flow changes nothing.
    """
    try:
        yield from rename(call, task_id)
    except LockError as error:
        logger.warning("task %s[%s]: its record keeps a provisional id: %s", call.task, call.task_id, error)


def body_flow(lock: DjangoTaskLock, name: str, task_id: str, body: Step) -> Flow[Any]:
    """Run the body with its lock held. Returns the value of the body; for a refused call, `duplicate_result`.

    ``name``: the lock's name. ``task_id``: the call's id, ``""`` if unknown. ``body``: calls the framework's
    ``call()``. Raises ``LockNotAcquired`` for a refused call with ``on_conflict="raise"`` or ``"wait"``,
    ``LockUnavailable`` when the store is unavailable.
    """
    call = lock.call(name, task_id)
    handle = lock.body_lock(call)
    try:
        outcome = yield from _start_flow(lock, call, handle, known=bool(task_id))
    except LockUnavailable as error:
        unprotected = StepOutcome(error=error)
        if lock.options.run_unprotected:
            logger.warning("task %s[%s] runs unprotected: %s", call.task, task_id, error)
            unprotected = yield body
        if call.mode.at_submit:  # the worker doesn't know the delivery id of the record
            yield from _cancel_flow(lock, call, same_delivery=False)
        return unprotected.unwrap()
    if isinstance(outcome, Refusal):
        if call.mode.at_submit:  # the call was queued, but a task of another mode with the same key runs
            yield from _rename_flow(call, UNNAMED)  # the call may have started before enqueue() has renamed the record
            yield from _cancel_flow(lock, call, same_delivery=False)
        conflict = _conflict(call, "start", outcome)
        on_conflict = lock.options.at_start
        action = "raise" if on_conflict == "wait" else decide(on_conflict, conflict, DECIDED)
        notify_duplicate(conflict, action == "log")
        if action == "raise":
            raise conflict.error()
        return duplicate_result(conflict)
    ended: StepOutcome = yield body
    yield from end_flow(handle, "removed")
    return ended.unwrap()


def _start_flow(lock: DjangoTaskLock, call: TaskCall, handle: Lock, known: bool) -> Flow[Hold | Refusal]:
    """Acquire the lock of the body with ``handle``. Returns the `Lease`, or the `Refusal` by another call.

    ``enqueue()`` writes the queued record with a provisional id, and the final id only after it has sent the call. The
    body may start in between, and the call's own record then refuses it. So a queued record with a provisional id
    counts as the call's own: it gets the task id of ``call``, and the lock is acquired again. ``known``: whether the
    worker knows the call's id. If not, any queued record counts as the call's own.
    """
    wait = lock.options.wait if lock.options.at_start == "wait" else 0.0
    outcome: Hold | Refusal = yield from handle.acquire_flow(0.0 if call.mode.at_submit else wait)
    if isinstance(outcome, Refusal) and call.mode.at_submit:
        conflict = conflict_of(call.task, call.task_id, call.name, "start", outcome)
        taken = conflict.state == "queued" and (conflict.holder.startswith(UNNAMED) or not known)
        if taken:
            yield from rename(call, conflict.holder)
        if taken or wait:
            outcome = yield from handle.acquire_flow(wait)
    return outcome


def _conflict(call: TaskCall, where: Any, refusal: Refusal) -> Conflict:
    """Return the `Conflict` for ``refusal``, the store's answer to ``call``. Provisional ids are replaced with ``""``.

    ``where``: "submit" or "start".
    """
    conflict = conflict_of(call.task, call.task_id, call.name, where, refusal)
    task_id, holder = ("" if each.startswith(UNNAMED) else each for each in (conflict.task_id, conflict.holder))
    return conflict._replace(task_id=task_id, holder=holder)
