"""Submits a call of a task, and runs its body: `submit_flow` and `body_flow`, which Celery and ``django.tasks`` share.

If the store refuses a call at its start, a worker can put the call off: the store keeps the call's message until a body
ends. The process that has ended the body then sends the message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

from ..core.events import logger
from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import Flow, Sleep
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError, LockUnavailable
from .call import Ending, TaskCall
from .conflicts import AT_START, AT_SUBMIT, Conflict, conflict_of, decide, duplicate_result, notify_duplicate
from .records import BodyLock, submit

_CALL: Any = object()  # yielded where the framework's own code runs, which sends a call or is the body of a task
_POLL_SECONDS = 0.05


class _Outcome(NamedTuple):
    value: Any = None
    error: BaseException | None = None


def run(flow: Flow[Any], perform: Callable[[Any], Any], call: Callable[[], Any]) -> Any:
    """Run ``flow``, blocking, and return its result. ``perform`` performs its requests, ``call`` runs at `_CALL`."""

    def step(request: Any) -> Any:
        if request is not _CALL:
            return perform(request)
        try:
            return _Outcome(call())
        except BaseException as error:  # noqa: BLE001  (the flow raises it)
            return _Outcome(error=error)

    return drive(flow, step)


async def arun(flow: Flow[Any], perform: Callable[[Any], Awaitable[Any]], call: Callable[[], Awaitable[Any]]) -> Any:
    """Run ``flow`` on the running event loop, and return its result, as `run` does."""

    async def step(request: Any) -> Any:
        if request is not _CALL:
            return await perform(request)
        try:
            return _Outcome(await call())
        except BaseException as error:  # noqa: BLE001  (the flow raises it)
            return _Outcome(error=error)

    return await adrive(flow, step)


def _call_flow() -> Flow[Any]:
    """Run the framework's code. Returns its value, and raises its error."""
    outcome = yield _CALL
    try:
        if outcome.error is not None:
            raise outcome.error
        return outcome.value
    finally:
        del outcome  # the error's traceback refers to this frame


# ── submit ───────────────────────────────────────────────────────────────────────────────────────


def submit_flow(
    lock: Any, call: TaskCall, *, own: bool = False, must_send: bool = False, must_survive: bool = False
) -> Flow[Any]:
    """Write the record of the queued call, and send the call. Returns the framework's result, or a `Conflict`.

    ``lock``: the `TaskLock`. ``own``: the call is a retry by the task that owns the record. ``must_send``: the call is
    sent even if it is refused, and a worker decides when it starts the body. ``must_survive``: it is sent even if the
    store is down.
    Raises ``LockNotAcquired`` for a duplicate with the action "raise" or "wait", ``LockUnavailable``.
    """
    conflict: Conflict | None = None
    recorded = bool(call.mode.at_submit)
    try:
        if recorded:
            conflict = yield from _record_flow(lock, call, own, must_send)
    except LockUnavailable as error:
        if not (lock.options.runs_unprotected or must_survive):
            if error.unconfirmed:  # its record would make every later call a duplicate of a call that was not sent
                yield from lock.cancel_flow(call)
            raise
        logger.warning("task %s[%s] is sent without a record: %s", call.task, call.task_id, error)
        recorded = False
    if conflict is not None and not must_send:
        return conflict
    try:
        return (yield from _call_flow())
    except BaseException:
        if recorded and conflict is None:
            yield from lock.cancel_flow(call)
        raise


def _record_flow(lock: Any, call: TaskCall, own: bool, must_send: bool) -> Flow[Conflict | None]:
    """Write the record of the queued call. Returns ``None``, or the `Conflict` of a call that was refused."""
    store, options = lock.store, lock.options
    on_conflict, wait = options.actions[0], options.conflict_timeout
    deadline = store.clock() + wait
    action: Any = on_conflict
    while True:
        refusal: Refusal | None = yield from submit(call, own, action == "replace", store.algorithm)
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


# ── run ──────────────────────────────────────────────────────────────────────────────────────────


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
        value = yield from _call_flow()
        ending = run.ending(None)
        return value
    except BaseException as error:
        ending = run.ending(error)
        raise
    finally:
        if handle is not None:
            run.send((yield from end_flow(handle, ending)))
        elif ending != "requeued":
            yield from run.lock.cancel_flow(run.call, run.same_delivery)


def _decided(run: BodyRun, conflict: Conflict) -> tuple[str, Exception]:
    """Return the action for a conflict, and the error with which the call fails if it must."""
    if conflict.state == "replaced":
        return ("log" if run.word == "log" else "skip"), conflict.error()
    try:
        return decide(run.word, conflict, run.known), conflict.error()
    except Exception as error:  # noqa: BLE001  (the task fails with what the callable raised)
        return "raise", error


def end_flow(lock: Lock, ending: Ending) -> Flow[bytes | None]:
    """Release the lock of a task's body, as `message_flow`. ``ending``: the effect on the record of the task."""
    if isinstance(lock, BodyLock):
        lock.ending = ending
    return message_flow(lock.release_flow())


def message_flow(flow: Flow[Any]) -> Flow[bytes | None]:
    """Run ``flow``, which ends a task's body. Returns the message of another call that waited for the end of the body.

    The caller must send the message now; ``None`` if no call waited. The script that ends the body may reply ``[1,
    message]`` in place of 1. A ``LockError`` is logged and not raised, because it must not change the outcome of the
    task, and the message must not be lost.
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
