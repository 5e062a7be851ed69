"""In a worker: the fence before the body, and the end of the body."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from celery.app.autoretry import add_autoretry_behaviour
from celery.app.task import Context
from celery.exceptions import Ignore, Retry
from celery.signals import task_internal_error

from ..core.drivers import drive
from ..core.events import logger
from ..core.lease import Lease, Refusal
from ..core.lock import Lock
from ..errors import LockError, LockUnavailable
from .conflicts import AT_START, Conflict, conflict_of, decide, marker, tell
from .guard import Message
from .records import Running, Ticket

if TYPE_CHECKING:
    from .task import SingleInstance

ENTERED = "redlock_entered"  # in a request whose body has begun: what it calls directly takes no lock
PATIENCE = 0.5  # seconds for which a retry or redelivery waits in place for the end of the run before it
LONGEST_PAUSE = 60.0
_last: ContextVar[str] = ContextVar("redlock_last", default="")  # the sending that came to the fence last


def run(task: SingleInstance, request: Any, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run the body with the lock held, or do what the task wants done about a conflict."""
    vars(request)[ENTERED] = True
    guard = task.redlock
    message = guard.message(task, request)
    _last.set(message.sending)
    ticket = guard.ticket(task, request.id, message)
    try:
        lock = guard.lock(ticket)
        outcome = _enter(task, request, lock, ticket, guard.options.wait if guard.options.at_start == "wait" else 0.0)
    except LockUnavailable as error:
        if not guard.options.run_unprotected:
            _fail(task, ticket, error)
        logger.warning("task %s[%s] runs unprotected: %s", task.name, request.id, error)
        try:
            return body(*args, **kwargs)
        finally:
            _forget(task, ticket)
    except BaseException:
        _forget(task, ticket)
        raise
    if isinstance(outcome, Refusal):
        return _refused(task, request, ticket, message, outcome)
    return _protected(task, lock, body, args, kwargs)


def _enter(task: SingleInstance, request: Any, lock: Lock, ticket: Ticket, wait: float) -> Lease | Refusal:
    perform = lock._store.perform
    outcome = drive(lock._acquiring(wait), perform)
    if isinstance(outcome, Refusal) and wait < PATIENCE:
        conflict = conflict_of(task.name, ticket.task_id, ticket.name, "start", outcome)
        if _is_ending(conflict, request):
            # The message came before the body that sent it was over: that is a matter of milliseconds.
            outcome = drive(lock._acquiring(PATIENCE), perform)
    return outcome


def _is_ending(conflict: Conflict, request: Any) -> bool:
    """Whether the body in the way is about to end: it is the same task, retried, or called ``replace()`` with this."""
    replaced = request.parent_id if request.get("replaced_task_nesting") else None
    return conflict.state == "running" and conflict.holder in (request.id, replaced)


def _protected(task: SingleInstance, lock: Lock, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    ended, again = False, False
    try:
        value = body(*args, **kwargs)
        ended = True
        return value
    except Exception as error:
        again = _comes_back(task, error)
        ended = not again
        raise
    except BaseException as error:
        again = _comes_back(task, error)
        raise
    finally:
        # Here and not in after_return: the chain's next step is sent before that, and may be a call of the same key.
        leave(lock, ended, again)


def never_began(task: SingleInstance, error: BaseException) -> None:
    """What is called before the body has raised: the record of what was queued goes, unless its message comes back."""
    request: Any = task.request
    if not (request.is_eager or request.called_directly or _comes_back(task, error)):
        _forget(task, task.redlock.ticket(task, request.id, task.redlock.message(task, request)))


@task_internal_error.connect
def _failed_outside(sender: Any, request: Any, **_: Any) -> None:
    """Celery has failed around the body; before it, when the result store could not be told that the task has started:
    then the record of what was queued goes.
    """
    context: Any = Context(request)
    if hasattr(sender, "redlock") and not context.is_eager:
        message = sender.redlock.message(sender, context)
        if message.sending != _last.get():
            _forget(sender, sender.redlock.ticket(sender, context.id, message))


def _comes_back(task: SingleInstance, error: BaseException) -> bool:
    """Whether the broker will deliver the message once more. What ends the process leaves it unacknowledged; should
    Celery acknowledge it all the same, the worker's main process frees the record.
    """
    options: Any = task
    requeued = isinstance(error, SystemExit | KeyboardInterrupt) or getattr(error, "requeue", False)
    return bool(requeued and options.acks_late)


def leave(lock: Lock, ended: bool, again: bool = False) -> None:
    """Free the lock of a body. ``again``: the broker will deliver the message once more, keep the lock for it.

    What goes wrong is logged: it must not change the outcome of a task.
    """
    primitive = lock._primitive
    if isinstance(primitive, Running):
        primitive.ended = ended
        primitive.keep = primitive.ticket.keep if again else 0.0
    try:
        drive(lock._releasing(), lock._store.perform)
    except LockError as error:
        logger.warning("%s", error)


def _refused(task: SingleInstance, request: Any, ticket: Ticket, message: Message, refusal: Refusal) -> Any:
    conflict = conflict_of(task.name, request.id, ticket.name, "start", refusal)
    if conflict.state == "ended":
        logger.info("task %s[%s] came again after it had ended: not run again", task.name, request.id)
        raise Ignore(f"{task.name}[{request.id}] has run")
    if _is_ending(conflict, request):
        # Nothing is lost and nothing runs twice.
        pause = min(max(refusal.remaining, 1.0), LONGEST_PAUSE)
        logger.info("task %s[%s] still runs: looked at again in %.0f s", task.name, conflict.holder, pause)
        return _put_off(task, ticket, pause, message)
    tell(conflict, task.redlock.options.at_start == "log")
    if conflict.state == "replaced":
        return marker(conflict)
    options = task.redlock.options
    try:
        word = decide(options.at_start, conflict, AT_START)
    except Exception as error:  # noqa: BLE001  (a callable may raise what it likes: the task fails with that)
        _fail(task, ticket, error)
    if word == "retry" and (options.retries is None or message.tries < options.retries):
        pause = min(LONGEST_PAUSE, 2.0**message.tries) * random.uniform(0.5, 1.0)
        return _put_off(task, ticket, pause, message._replace(tries=message.tries + 1))
    if word in ("raise", "wait", "retry"):
        _fail(task, ticket, conflict.error())
    _forget(task, ticket)
    return marker(conflict)  # returned, not ignored: a chord would wait for it for ever


def _fail(task: SingleInstance, ticket: Ticket, error: Exception) -> NoReturn:
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
        _forget(task, ticket)
        raise
    raise error


def _raising(error: Exception) -> Callable[..., NoReturn]:
    def run() -> NoReturn:
        raise error

    return run


def _put_off(task: SingleInstance, ticket: Ticket, seconds: float, message: Message) -> NoReturn:
    try:
        task._put_off(seconds, message)
    except Exception:
        _forget(task, ticket)
        raise
    raise Ignore(f"put off by {seconds:.1f} s")


def _forget(task: SingleInstance, ticket: Ticket) -> None:
    if ticket.mode.at_submit:
        task.redlock.forget(ticket)
