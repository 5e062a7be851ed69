"""Runs a task's body with its lock held: `body_flow`, which Celery's worker, its eager mode and ``django.tasks`` share.

If the store refuses a call at its start, a worker can put the call off: the store keeps the call's message until a body
ends. The process that has ended the body then sends the message.
"""

from __future__ import annotations

from typing import Any, cast

from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError, LockUnavailable
from .body import BodyLock
from .call import Ending, TaskCall
from .call_drivers import CALL
from .conflicts import AT_START, Conflict, conflict_of, decide, duplicate_result, notify_duplicate


class BodyRun:
    """One run of a task's body, and the decisions that depend on the framework. Subclasses override these.

    ``lock``: the `TaskLock`.
    ``word``: the option ``on_conflict`` for this run. ``begun``: the lock is held, or the run is unprotected.
    """

    known: tuple[str, ...] = tuple(action for action in AT_START if action != "retry")
    same_delivery = True  # the run knows the delivery id of its queued record
    begun = False

    def __init__(self, lock: Any, call: TaskCall) -> None:
        self.lock, self.call, self.word = lock, call, lock.options.actions[1]

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        """Acquire the lock of the body."""
        return handle.acquire_flow(wait)

    def conflict(self, refusal: Refusal) -> Conflict:
        """Return the `Conflict` for a refused start. Raises an error for a call that is neither run nor a duplicate."""
        return conflict_of(self.call, "start", refusal)

    def refused_flow(self, conflict: Conflict, action: str, failure: Exception) -> Flow[Any]:
        """Return the value of a refused call, or raise ``failure``. ``action``: what ``on_conflict`` says."""
        yield from self.lock.cancel_flow(self.call, self.same_delivery)
        if action in ("raise", "wait"):
            raise failure
        return duplicate_result(conflict)

    def unavailable_flow(self, error: LockUnavailable) -> Flow[None]:
        """Raise ``error``, with which the store has answered the start, unless the body runs unprotected."""
        if not self.lock.options.runs_unprotected:
            yield from self.lock.cancel_flow(self.call, self.same_delivery)
            raise error
        logger.warning("task %s[%s] runs unprotected: %s", self.call.task, self.call.task_id, error)

    def ending(self, error: BaseException | None) -> Ending:
        """Return the effect of the body's end on the record. ``error``: what the body has raised."""
        return "removed"

    def unprotected_end_flow(self, ending: Ending) -> Flow[None]:
        """End a body that ran without a lock."""
        yield from self.lock.cancel_flow(self.call, self.same_delivery)

    def send(self, message: bytes | None) -> None:
        """Send the message of a call that was put off until this body ended."""


def body_flow(run: BodyRun) -> Flow[Any]:
    """Run a task's body with its lock held, and return its value. A refused call gets the action of ``on_conflict``.

    Raises ``LockNotAcquired`` for a duplicate that must fail, ``LockUnavailable`` when the store is unavailable, and
    the errors of `BodyRun`.
    """
    handle, options = None, run.lock.options
    wait = cast("float", options.conflict_timeout)
    waited = run.word == "wait"
    outcome: Hold | Refusal | None = None
    try:
        handle = run.lock.body_lock(run.call)
        outcome = yield from run.acquire_flow(handle, wait if waited else 0.0)
        while isinstance(outcome, Refusal):
            conflict = run.conflict(outcome)
            action, failure = ("wait", conflict.error()) if waited else _decided(run, conflict)
            if waited or action != "wait":
                break
            waited, outcome = True, (yield from handle.acquire_flow(wait))
    except LockUnavailable as error:
        yield from run.unavailable_flow(error)
        handle = outcome = None
    if isinstance(outcome, Refusal):
        notify_duplicate(conflict, action == "log")
        return (yield from run.refused_flow(conflict, action, failure))
    run.begun = True
    ending: Ending = "removed"
    try:
        value = yield CALL
        ending = run.ending(None)
        return value
    except BaseException as error:
        ending = run.ending(error)
        raise
    finally:
        if handle is None:
            yield from run.unprotected_end_flow(ending)
        else:
            run.send((yield from end_flow(handle, ending)))


def _decided(run: BodyRun, conflict: Conflict) -> tuple[str, Exception]:
    """Return the action for a conflict, and the error with which the call fails if it must."""
    if conflict.state == "replaced":
        return ("log" if run.word == "log" else "skip"), conflict.error()
    try:
        return decide(run.word, conflict, run.known), conflict.error()
    except Exception as error:  # noqa: BLE001  (the task fails with what the callable raised)
        return "raise", error


def end_flow(lock: Lock, ending: Ending) -> Flow[bytes | None]:
    """Return the flow that releases the lock of a task's body, as `message_flow` runs it.

    ``ending``: the effect on the record of the task.
    """
    if isinstance(lock, BodyLock):
        lock.ending = ending
    return message_flow(lock.release_flow())


def message_flow(flow: Flow[Any]) -> Flow[bytes | None]:
    """Run ``flow``, which ends a task's body. Returns the message of another call that waited for the end of the body.

    The caller must send this message now. Returns ``None`` if no call waited. The script that ends the body may reply
    ``[1, message]`` in place of 1. This function keeps the message, and passes 1 to ``flow``. A ``LockError`` is logged
    and not raised, because it must not change the outcome of the task, and the message must not be lost.
    """
    message: bytes | None = None
    try:
        request = next(flow)
        while True:
            reply = yield request
            if isinstance(reply, list) and reply[:1] == [1] and isinstance(reply[-1], bytes):
                message, reply = reply[1], 1
            request = flow.send(reply)
    except StopIteration:
        return message
    except LockError as error:
        logger.warning("%s", error)
        return message
    finally:
        flow.close()
