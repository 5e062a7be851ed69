"""In a worker: the fence before the body, and the end of the body."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

from celery.app.autoretry import add_autoretry_behaviour
from celery.app.task import Context
from celery.exceptions import Ignore, Retry
from celery.signals import task_internal_error

from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.locks.lock import Lock
from ..core.values import Lease, Refusal
from ..errors import LockError, LockUnavailable
from .conflicts import AT_START, Conflict, conflict_of, decide, duplicate_result, notify_duplicate
from .contract import ProtectedTask
from .records import BodyLease, TaskCall
from .task_lock import Message

ENTERED = "redlock_entered"  # in a request whose body has begun: what it calls directly takes no lock
RETRY_OVERLAP_SECONDS = 0.5  # seconds for which a retry or redelivery waits in place for the end of the run before it
LONGEST_PAUSE = 60.0
_last_delivery_id: ContextVar[str] = ContextVar("redlock_last", default="")  # the sending that came to the fence last


def run(task: ProtectedTask, request: Any, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the body with the lock held, or do what the task wants done about a conflict."""
    vars(request)[ENTERED] = True
    guard = task.redlock
    message = guard.message(task, request)
    _last_delivery_id.set(message.delivery_id)
    ticket = guard.new_call(task, request.id, message)
    try:
        lock = guard.lock(ticket)
        outcome = _acquire(task, request, lock, ticket, guard.options.wait if guard.options.at_start == "wait" else 0.0)
    except LockUnavailable as error:
        if not guard.options.run_unprotected:
            _fail(task, ticket, error)
        logger.warning("task %s[%s] runs unprotected: %s", task.name, request.id, error)
        try:
            return body(*args, **kwargs)
        finally:
            _cancel(task, ticket)
    except BaseException:
        _cancel(task, ticket)
        raise
    if isinstance(outcome, Refusal):
        return _refused(task, request, ticket, message, outcome)
    return _run_protected(task, lock, body, args, kwargs)


def _acquire(task: ProtectedTask, request: Any, lock: Lock, call: TaskCall, wait: float) -> Lease | Refusal:
    perform = lock.store.perform
    outcome = drive(lock.acquire_flow(wait), perform)
    if isinstance(outcome, Refusal) and wait < RETRY_OVERLAP_SECONDS:
        conflict = conflict_of(task.name, call.task_id, call.name, "start", outcome)
        if _is_ending(conflict, request):
            # The message came before the body that sent it was over: that is a matter of milliseconds.
            outcome = drive(lock.acquire_flow(RETRY_OVERLAP_SECONDS), perform)
    return outcome


def _is_ending(conflict: Conflict, request: Any) -> bool:
    """Whether the body in the way is about to end: it is the same task, retried, or called ``replace()`` with this."""
    replaced = request.parent_id if request.get("replaced_task_nesting") else None
    return conflict.state == "running" and conflict.holder in (request.id, replaced)


def _run_protected(task: ProtectedTask, lock: Lock, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    ended, again = False, False
    try:
        value = body(*args, **kwargs)
        ended = True
        return value
    except Exception as error:
        again = _will_be_redelivered(task, error)
        ended = not again
        raise
    except BaseException as error:
        again = _will_be_redelivered(task, error)
        raise
    finally:
        # Here and not in after_return: the chain's next step is sent before that, and may be a call of the same key.
        release_body(lock, ended, again)


def cancel_unstarted(task: ProtectedTask, error: BaseException) -> None:
    """What is called before the body has raised: the record of what was queued goes, unless its message comes back."""
    request: Any = task.request
    if not (request.is_eager or request.called_directly or _will_be_redelivered(task, error)):
        _cancel(task, task.redlock.new_call(task, request.id, task.redlock.message(task, request)))


@task_internal_error.connect
def _failed_outside(sender: Any, request: Any, **_: Any) -> None:
    """Celery has failed around the body; before it, when the result store could not be told that the task has started:
    then the record of what was queued goes.
    """
    context: Any = Context(request)
    if hasattr(sender, "redlock") and not context.is_eager:
        message = sender.redlock.message(sender, context)
        if message.delivery_id != _last_delivery_id.get():
            _cancel(sender, sender.redlock.new_call(sender, context.id, message))


def _will_be_redelivered(task: ProtectedTask, error: BaseException) -> bool:
    """Whether the broker will deliver the message once more. What ends the process leaves it unacknowledged; should
    Celery acknowledge it all the same, the worker's main process frees the record.
    """
    options: Any = task
    requeued = isinstance(error, SystemExit | KeyboardInterrupt) or getattr(error, "requeue", False)
    return bool(requeued and options.acks_late)


def release_body(lock: Lock, ended: bool, again: bool = False) -> None:
    """Free the lock of a body. ``again``: the broker will deliver the message once more, keep the lock for it.

    What goes wrong is logged: it must not change the outcome of a task.
    """
    primitive = lock.primitive
    if isinstance(primitive, BodyLease):
        primitive.ended = ended
        primitive.requeue_ttl = primitive.call.requeue_ttl if again else 0.0
    try:
        drive(lock.release_flow(), lock.store.perform)
    except LockError as error:
        logger.warning("%s", error)


def _refused(task: ProtectedTask, request: Any, call: TaskCall, message: Message, refusal: Refusal) -> Any:
    conflict = conflict_of(task.name, request.id, call.name, "start", refusal)
    if conflict.state == "ended":
        logger.info("task %s[%s] came again after it had ended: not run again", task.name, request.id)
        raise Ignore(f"{task.name}[{request.id}] has run")
    if _is_ending(conflict, request):
        # Nothing is lost and nothing runs twice.
        pause = min(max(refusal.remaining, 1.0), LONGEST_PAUSE)
        logger.info("task %s[%s] still runs: looked at again in %.0f s", task.name, conflict.holder, pause)
        return _resend(task, call, pause, message)
    notify_duplicate(conflict, task.redlock.options.at_start == "log")
    if conflict.state == "replaced":
        return duplicate_result(conflict)
    options = task.redlock.options
    try:
        word = decide(options.at_start, conflict, AT_START)
    except Exception as error:  # noqa: BLE001  (a callable may raise what it likes: the task fails with that)
        _fail(task, call, error)
    if word == "retry" and (options.retries is None or message.tries < options.retries):
        pause = min(LONGEST_PAUSE, 2.0**message.tries) * random.uniform(0.5, 1.0)
        return _resend(task, call, pause, message._replace(tries=message.tries + 1))
    if word in ("raise", "wait", "retry"):
        _fail(task, call, conflict.error())
    _cancel(task, call)
    return duplicate_result(conflict)  # returned, not ignored: a chord would wait for it for ever


def _fail(task: ProtectedTask, call: TaskCall, error: Exception) -> NoReturn:
    """Raise ``error``, or retry where ``autoretry_for`` says so: Celery looks at what the body raises only, so a copy
    of the task is given it for a body. What was queued goes, unless a retry has taken its place.
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
        _cancel(task, call)
        raise
    raise error


def _raising(error: Exception) -> Callable[..., NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


def _resend(task: ProtectedTask, call: TaskCall, seconds: float, message: Message) -> NoReturn:
    try:
        task.resend(seconds, message)
    except Exception:
        _cancel(task, call)
        raise
    raise Ignore(f"put off by {seconds:.1f} s")


def _cancel(task: ProtectedTask, call: TaskCall) -> None:
    if call.mode.at_submit:
        task.redlock.cancel(call)
