"""Runs a task's body in a worker: acquires the lock, calls the body, releases the lock. Handles refused calls."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn

from celery import states
from celery.app.autoretry import add_autoretry_behaviour
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import task_failure, task_internal_error, task_success

from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockUnavailable
from ..single_instance.call import Ending, TaskCall
from ..single_instance.conflicts import (
    AT_START,
    Conflict,
    OnConflict,
    conflict_of,
    decide,
    duplicate_result,
    notify_duplicate,
)
from ..single_instance.ending import end_flow
from .messages import ENDS, ENTERED, Message
from .protected_task import ProtectedTask
from .put_off import MAX_RESEND_SECONDS, end_delivery, put_off, send

RETRY_OVERLAP_SECONDS = 0.5  # longest wait of a retry or redelivery for the end of the previous run
# Delivery id of the last body that this thread or greenlet was about to run.
_last_delivery_id: ContextVar[str] = ContextVar("redlock_last_delivery", default="")


def run(task: ProtectedTask, request: Any, body: Callable[..., Any], args: Any, kwargs: Any, decided: str = "") -> Any:
    """Run ``body`` with the lock held and return its value. A refused call gets the action of ``on_conflict``.

    ``decided``: the action that the callable ``on_conflict`` has returned, ``"wait"``; ``""`` if it was not called.
    A duplicate that is skipped returns `duplicate_result`. Raises Celery's ``Ignore`` for a call that is sent again or
    has run before, ``LockNotAcquired`` for a duplicate that must fail, ``LockUnavailable`` when the store is
    unavailable. With ``on_store_error="run"``, the body runs without a lock instead.
    """
    vars(request)[ENTERED] = True
    options = task.redlock.options
    on_conflict: OnConflict = "wait" if decided else options.at_start
    message = task.redlock.message(task, request)
    _last_delivery_id.set(message.delivery_id)
    call = task.redlock.new_call(task, request.id, message)
    try:
        lock = task.redlock.body_lock(call)
        outcome = _acquire(task, request, lock, call, options.wait if on_conflict == "wait" else 0.0)
    except LockUnavailable as error:
        if message.prompt:
            logger.info("task %s[%s] is tried again at its ETA only: %s", task.name, request.id, error)
            raise Ignore("sent again") from error
        if not options.run_unprotected:
            _fail(task, call, error)
        logger.warning("task %s[%s] runs unprotected: %s", task.name, request.id, error)
        return _run_body(task, request, call, partial(_end_unprotected, task, call), body, args, kwargs)
    except BaseException:
        _cancel(task, call)
        raise
    if isinstance(outcome, Refusal):
        wait = partial(run, task, request, body, args, kwargs, "wait")
        return _refused(task, request, call, message, outcome, on_conflict, wait)
    if message.tries and not task.acks_late:
        body = partial(_run_only_copy, task, call, body)
    return _run_body(task, request, call, partial(_end_protected, task, lock), body, args, kwargs)


def _run_only_copy(task: ProtectedTask, call: TaskCall, body: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run ``body`` so that no other copy of its message runs later. Returns the value of the body.

    Without acks_late, the broker doesn't deliver this copy again if the process dies.
    """
    end_delivery(task, call)
    return body(*args, **kwargs)


def _acquire(task: ProtectedTask, request: Any, lock: Lock, call: TaskCall, wait: float) -> Hold | Refusal:
    perform = lock.store.perform
    outcome = drive(lock.acquire_flow(wait), perform)
    if isinstance(outcome, Refusal) and wait < RETRY_OVERLAP_SECONDS:
        conflict = conflict_of(task.name, call.task_id, call.name, "start", outcome)
        if _is_ending(conflict, request):
            # The message arrived a few milliseconds before the end of the body that sent it.
            outcome = drive(lock.acquire_flow(RETRY_OVERLAP_SECONDS), perform)
    return outcome


def _is_ending(conflict: Conflict, request: Any) -> bool:
    """Return whether the body that holds the lock is expected to end at once.

    True for an earlier run with the same task id, and for the task that this task has replaced (``replace()``). In both
    cases the state of the conflict is "running", or "held" in a store that keeps no records of tasks.
    """
    replaced = request.parent_id if request.get("replaced_task_nesting") else None
    return conflict.state in ("running", "held") and conflict.holder in (request.id, replaced)


def _run_body(
    task: ProtectedTask,
    request: Any,
    call: TaskCall,
    end: Callable[[Ending], None],
    body: Callable[..., Any],
    args: Any,
    kwargs: Any,
) -> Any:
    """Run ``body`` and return its value. Then call ``end`` with the effect of the body's end on the record."""
    ending: Ending = "removed"
    try:
        _store_started(task, request)
        value = body(*args, **kwargs)
        ending = _end_of(task, request, call, _follows(request))
        return value
    except BaseException as error:
        if _will_be_redelivered(task, error):
            ending = "requeued"
        elif isinstance(error, Exception):
            ending = _end_of(task, request, call, _follows(request) and not isinstance(error, Ignore | Reject | Retry))
        raise
    finally:
        # Not in after_return, because Celery sends the next step of a chain before, and that step may need this lock.
        end(ending)


def _store_started(task: ProtectedTask, request: Any) -> None:
    """Store the state STARTED, if the task has ``track_started``. Celery would store it before the lock is acquired.

    A call that is put off, or was delivered again after its end, would then stay STARTED.
    """
    if task.redlock.track_started and not vars(request).get("ignore_result", task.ignore_result):
        meta = {"pid": os.getpid(), "hostname": request.hostname}
        task.backend.store_result(request.id, meta, states.STARTED, request=request)


def _follows(request: Any) -> bool:
    """Return whether Celery sends or counts something after the body: a chain's next step, a link, a chord."""
    return bool(request.chain or request.callbacks or request.errbacks or request.chord)


def _end_of(task: ProtectedTask, request: Any, call: TaskCall, follows: bool) -> Ending:
    """Return the effect of a body's end. With ``acks_late``, the delivery ends when what follows has been sent.

    If the worker is killed before, the redelivered message runs again, and the rest of the chain is not lost.
    """
    options: Any = task
    if not (follows and options.acks_late):
        return "ended"
    vars(request)[ENDS] = call
    return "removed"


@task_success.connect
@task_failure.connect
def _end_delivery_at_last(sender: Any, **_: Any) -> None:
    """End the delivery of a call whose following messages have been sent. A receiver."""
    if hasattr(sender, "redlock") and (call := vars(sender.request).pop(ENDS, None)) is not None:
        end_delivery(sender, call)


def _end_protected(task: ProtectedTask, lock: Lock, ending: Ending) -> None:
    send(task.app, drive(end_flow(lock, ending), lock.store.perform))


def _end_unprotected(task: ProtectedTask, call: TaskCall, ending: Ending) -> None:
    if ending == "ended":
        _cancel_unanswered(task, call)
    elif ending == "removed":
        _cancel(task, call)


def cancel_unstarted(task: ProtectedTask, error: BaseException) -> None:
    """Cancel the queued call of ``task``, whose ``before_start`` has raised ``error``.

    The call stays queued if the broker will deliver the message again.
    """
    request: Any = task.request
    unlocked = not hasattr(task, "redlock") or request.is_eager or request.called_directly
    if not (unlocked or _will_be_redelivered(task, error)):
        message = task.redlock.message(task, request)
        call = task.redlock.new_call(task, request.id, message)
        if message.tries:
            end_delivery(task, call)
        _cancel(task, call)


@task_internal_error.connect
def _cancel_failed_outside(sender: Any, request: Any, **_: Any) -> None:
    """Cancel the queued call if Celery itself failed before the body, for example while storing the state STARTED.

    A receiver of Celery's signal ``task_internal_error``.
    """
    context: Any = Context(request)
    if hasattr(sender, "redlock") and not context.is_eager:
        message = sender.redlock.message(sender, context)
        if message.delivery_id != _last_delivery_id.get():
            _cancel(sender, sender.redlock.new_call(sender, context.id, message))


def _will_be_redelivered(task: ProtectedTask, error: BaseException) -> bool:
    """Return whether the broker will deliver the message again after ``error``.

    True if the task has ``acks_late`` and the error ends the process or asks for a requeue, as Celery's ``Reject`` can.
    If Celery acknowledges the message nevertheless, the worker's main process removes the record.
    """
    options: Any = task
    requeued = isinstance(error, SystemExit | KeyboardInterrupt) or getattr(error, "requeue", False)
    return bool(requeued and options.acks_late)


def _refused(
    task: ProtectedTask,
    request: Any,
    call: TaskCall,
    message: Message,
    refusal: Refusal,
    on_conflict: OnConflict,
    wait: Callable[[], Any],
) -> Any:
    """Handle a refused call as ``on_conflict`` says, and return the value of the call.

    ``wait``: runs the call with the action "wait". It is called if the callable ``on_conflict`` returns this action.
    """
    options = task.redlock.options
    conflict = conflict_of(task.name, request.id, call.name, "start", refusal)
    if conflict.state == "ended":
        logger.info("task %s[%s] was delivered again after it had ended: not run again", task.name, request.id)
        raise Ignore(f"{task.name}[{request.id}] has run")
    if _is_ending(conflict, request):
        # Most bodies that are about to end have ended by then. Later tries of a redelivered message wait for the end of
        # the lease.
        pause = min(max(refusal.remaining, 1.0), MAX_RESEND_SECONDS) if message.until else 1.0
        if message.until or (request.delivery_info or {}).get("redelivered"):
            message = message._replace(until=time.time() + pause)
        logger.info("task %s[%s] still runs: tried again in %.0f s", task.name, conflict.holder, pause)
        return _ignored(task, call, partial(task.resend, pause, message))
    if message.prompt:
        return _ignored(task, call, partial(put_off, task, call, message, conflict))
    if conflict.state == "replaced":
        notify_duplicate(conflict, on_conflict == "log")
        return duplicate_result(conflict)
    failure: Exception = conflict.error()
    try:
        action = decide(on_conflict, conflict, AT_START)
    except Exception as error:  # noqa: BLE001  (the task fails with whatever the callable raised)
        action, failure = "raise", error
    if action == "wait" and callable(on_conflict):
        return wait()
    notify_duplicate(conflict, action == "log")
    left = options.retries is None or message.tries < options.retries or time.time() < message.until
    if action == "retry" and left:
        return _ignored(task, call, partial(put_off, task, call, message, conflict))
    if message.tries:
        end_delivery(task, call)
    if action in ("raise", "wait", "retry"):
        _fail(task, call, failure)
    _cancel(task, call)
    return duplicate_result(conflict)  # returned, not ignored: a chord would wait forever


def _fail(task: ProtectedTask, call: TaskCall, error: Exception) -> NoReturn:
    """Raise ``error``, or Celery's ``Retry`` if ``autoretry_for`` names its class.

    Unless the call is retried, it is cancelled, which removes its queued record. To apply ``autoretry_for``, this
    function runs a copy of the task whose body raises ``error``, because Celery retries only errors of a body.
    """
    attempt = object.__new__(type(task))
    vars(attempt).update(vars(task))
    attempt.run = _raising(error)  # type: ignore[method-assign]
    if vars(attempt).pop("_orig_run", None) is not None:
        add_autoretry_behaviour(attempt)
    try:
        attempt.run()
    except Retry:
        raise
    except BaseException:
        _cancel_unanswered(task, call)
        raise
    raise error


def _raising(error: Exception) -> Callable[..., NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


def _ignored(task: ProtectedTask, call: TaskCall, resend: Callable[[], Any]) -> NoReturn:
    """Call ``resend``, which sends the call again, and end this run of the task without a result.

    Raises Celery's ``Ignore``. If ``resend`` raises, the queued call is cancelled.
    """
    try:
        resend()
    except Exception:
        _cancel(task, call)
        raise
    raise Ignore("sent again")


def _cancel_unanswered(task: ProtectedTask, call: TaskCall) -> None:
    """Cancel the queued call, which is over, although its start may have got no answer.

    If the network delays the start beyond the cancellation, the compensation of the start would queue the call again.
    The store refuses the start of a delivery that has ended.
    """
    if call.requeue_ttl and call.ending == "requeued":
        end_delivery(task, call)
    _cancel(task, call)


def _cancel(task: ProtectedTask, call: TaskCall) -> None:
    if call.mode.at_submit:
        task.redlock.cancel(call)
