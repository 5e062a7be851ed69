"""Runs a task's body in a worker with its lock held. Postpones, skips or fails a call whose lock is held."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from celery import states
from celery.exceptions import Ignore, Reject, Retry
from celery.signals import task_failure, task_success
from celery.utils.time import get_exponential_backoff_interval

from ..call_styles import Blocking, complete
from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError, LockUnavailable
from ..single_instance.call import AT_START, Conflict, Ending, TaskCall, conflict_of, duplicate_result
from ..single_instance.lifecycle import BodyRun
from ..single_instance.protection import TaskProtection
from ..single_instance.records import keep_message, remember_ended
from .messages import ENDS, ENTERED, enter
from .postponed_messages import record, send

RETRY_OVERLAP_SECONDS = 0.5  # longest wait of a retry or redelivery for the end of the previous run
MAX_RESEND_SECONDS = 60.0  # longest pause between two tries of a call
_LEASE_MARGIN = 0.01  # seconds after the end of a lease at which a call is tried again


def run_in_worker(task: Any, request: Any, body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run ``body`` with the lock held and return its value. A refused call gets the action of ``on_conflict``.

    A duplicate that is skipped returns `duplicate_result`. Raises Celery's ``Ignore`` for a call that is sent again or
    has run before, ``LockNotAcquired`` for a duplicate that must fail, ``LockUnavailable`` when the store is
    unavailable. With ``on_store_error="run"``, the body runs without a lock instead.
    """
    enter(request)
    this = WorkerRun(task, request)

    async def call() -> Any:
        this.before_body()
        return body(*args, **kwargs)

    try:
        return complete(this.run(call))
    except (Ignore, Retry):
        raise
    except BaseException:
        if not this.begun:  # failed, or for example a soft time limit while the call waited
            this.protection.cancel(this.call)
        raise


class WorkerRun(BodyRun):
    """One run of a body in a worker. ``message``: the header of the call's message."""

    known = AT_START

    def __init__(self, task: Any, request: Any) -> None:
        self.task, self.request = task, request
        self.message = task.redlock.message(task, request)
        super().__init__(Blocking(), task.redlock, task.redlock.call_of(task, self.message))

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        """Acquire the lock. If the run that sent this message is about to end, waits a short time for its release.

        If callbacks are sent after the release, a copy of a message does not wait for the run of another copy: the
        waiting copy would get the lock before the other run counts as ended, and run the body again.
        """
        apart = self._follows and self._is_copy
        waited = 0.0 if apart else wait
        outcome = yield from handle.acquire_flow(waited)
        if isinstance(outcome, Hold):
            return outcome
        if self._is_ending(conflict_of(self.call, "start", outcome)):
            wait = 0.0 if apart else RETRY_OVERLAP_SECONDS
        return (yield from handle.acquire_flow(wait)) if wait > waited else outcome

    @property
    def _follows(self) -> bool:
        """Whether the call counts as ended only when its callbacks, errbacks or the next step have been sent."""
        request = self.request
        follows = request.chain or request.callbacks or request.errbacks or request.chord
        return bool(follows and self.task.acks_late)

    @property
    def _is_copy(self) -> bool:
        """Whether another copy of this message may run: the call was postponed, or the message delivered again."""
        return bool(self.message.tries or (self.request.delivery_info or {}).get("redelivered"))

    def _is_ending(self, conflict: Conflict) -> bool:
        """Return whether the body that holds the lock will probably end at once.

        This is so for an earlier run with the same task id, and for the task that this task has replaced
        (``replace()``). In both cases the state of the conflict is "running", or "held" in a store that keeps no
        records of tasks.
        """
        request = self.request
        replaced = request.parent_id if request.get("replaced_task_nesting") else None
        return conflict.state in ("running", "held") and conflict.holder in (request.id, replaced)

    def conflict(self, refusal: Refusal) -> Conflict:
        """Return the `Conflict` of a refused call.

        Raises Celery's ``Ignore`` if the call has ended already, or if its message has been sent again or postponed.
        """
        conflict, task, request, message = super().conflict(refusal), self.task, self.request, self.message
        if conflict.state == "ended":
            logger.info("task %s[%s] was delivered again after it had ended: not run again", task.name, request.id)
            raise Ignore(f"{task.name}[{request.id}] has run")
        if self._is_ending(conflict):
            # Most bodies that are about to end have ended by then. Later tries of a redelivered message wait for the
            # end of the lease.
            pause = min(max(refusal.remaining, 1.0), MAX_RESEND_SECONDS) if message.until else 1.0
            if message.until or self._is_copy:
                message = message._replace(until=time.time() + pause)
            logger.info("task %s[%s] still runs: tried again in %.0f s", task.name, conflict.holder, pause)
            task.resend(pause, message)
            raise Ignore("sent again")
        if message.prompt:
            self._put_off(conflict)
        return conflict

    async def refused(self, conflict: Conflict, action: str, failure: Exception) -> Any:
        """Carry out ``action`` for a refused call: postpone it, raise ``failure``, or return `duplicate_result`."""
        message, retries = self.message, self.protection.options.retries
        if conflict.state == "replaced":
            return duplicate_result(conflict)
        left = retries is None or message.tries < retries or time.time() < message.until
        if action == "retry" and left:
            self._put_off(conflict)
        if message.tries:
            _end_delivery(self.protection, self.call)
        if action in ("raise", "wait", "retry"):
            _raise_or_retry(self.task, failure)
        return await super().refused(conflict, "skip", failure)  # a value: a chord would wait forever

    async def on_unavailable(self, error: LockUnavailable) -> None:
        """Raise ``error`` or retry the task; with ``on_store_error="run"``, let the body run without a lock.

        Raises Celery's ``Ignore`` if another copy of the message, with an ETA, will follow.
        """
        if self.message.prompt:
            logger.info("task %s[%s] is tried again at its ETA only: %s", self.call.task, self.call.task_id, error)
            raise Ignore("sent again") from error
        if self.protection.options.on_store_error != "run":
            _raise_or_retry(self.task, error)
        await super().on_unavailable(error)

    def before_body(self) -> None:
        """Store the state STARTED. Without ``acks_late``, also record that the call runs, so no other copy runs.

        Celery itself would store STARTED before the lock is acquired, so a postponed call would stay STARTED.
        """
        task, request = self.task, self.request
        if self.message.tries and not task.acks_late:
            _end_delivery(self.protection, self.call)
        if task.redlock.track_started and not vars(request).get("ignore_result", task.ignore_result):
            meta = {"pid": os.getpid(), "hostname": request.hostname}
            task.backend.store_result(request.id, meta, states.STARTED, request=request)

    def ending(self, error: BaseException | None) -> Ending:
        """Return the effect of the body's end on the record.

        With ``acks_late``, the record is kept after ``Reject`` and after an error that ends the process, because the
        broker may deliver the message again. If Celery acknowledges the message, the worker's main process removes the
        record. In a chain, a call has ended only when the next task has been sent. If the worker is killed before, the
        redelivered message runs again, and the rest of the chain is not lost.
        """
        if self.task.acks_late and (
            isinstance(error, SystemExit | KeyboardInterrupt) or getattr(error, "requeue", False)
        ):
            return "requeued"
        if error is not None and not isinstance(error, Exception):
            return "removed"
        if not self._follows or isinstance(error, Ignore | Reject | Retry):
            return "ended"
        vars(self.request)[ENDS] = self.call
        for signal in (task_success, task_failure):  # not before: a receiver costs each task time
            signal.connect(_end_delivery_at_last)
        return "removed"

    def send(self, message: bytes) -> None:
        send(self.task.app, message)

    def _put_off(self, conflict: Conflict) -> NoReturn:
        """Postpone the call: send one copy of its message with an ETA, and store another copy without an ETA.

        When the body that holds the lock ends, its worker sends the stored copy at once. Both copies have the same
        delivery id, so the store refuses the copy that arrives second. The delay until the ETA grows with each attempt,
        up to a minute. If the lease in ``conflict`` ends earlier, the ETA is just after the lease's end. Raises
        Celery's ``Ignore``.
        """
        task, message = self.task, self.message
        if not message.prompt:
            now = time.time()
            if now >= message.until:
                pause = min(MAX_RESEND_SECONDS, 2.0**message.tries) * random.uniform(0.5, 1.0)
                message = message._replace(tries=message.tries + 1, until=now + pause)
            task.resend(min(message.until - now, conflict.remaining + _LEASE_MARGIN), message)
        if self.protection.records.keeps_records:
            try:
                copy = record(task.app, partial(task.resend, 0, message._replace(prompt=True)))
                if copy is not None and not self.protection.drive(keep_message(self.call, copy)):
                    send(task.app, copy)
            except Exception as error:  # noqa: BLE001  (the copy with the ETA has been sent)
                logger.info("task %s[%s] is tried again at its ETA only: %s", task.name, self.call.task_id, error)
        raise Ignore("sent again")


def _end_delivery(protection: TaskProtection, call: TaskCall) -> None:
    """Record in the store that ``call`` has ended, so that no other copy of its message runs.

    Errors of the store are logged and not raised.
    """
    if not protection.records.keeps_records:
        return  # there is no other copy
    try:
        protection.drive(remember_ended(call))
    except LockError as error:
        logger.warning("task %s[%s] may run again: %s", call.task, call.task_id, error)


def _raise_or_retry(task: Any, error: Exception) -> NoReturn:
    """Raise ``error``, or retry the task if its ``autoretry_for`` names the class.

    Celery itself retries only after errors of the body. The options are read as in ``celery.app.autoretry``.
    """
    get = partial(getattr, task)
    retried, excluded = tuple(get("autoretry_for", ())), tuple(get("dont_autoretry_for", ()))
    if not isinstance(error, retried) or isinstance(error, excluded):
        raise error
    options = dict(get("retry_kwargs", {}))
    if backoff := float(get("retry_backoff", False)):
        options["countdown"] = get_exponential_backoff_interval(
            factor=int(max(1.0, backoff)),
            retries=task.request.retries,
            maximum=int(get("retry_backoff_max", 600)),
            full_jitter=get("retry_jitter", True),
        )
    raise task.retry(exc=error, **options)


def _end_delivery_at_last(sender: Any, **_: Any) -> None:
    """Record that a call has ended, after its callbacks have been sent. A receiver of signals."""
    if hasattr(sender, "redlock") and (call := vars(sender.request).pop(ENDS, None)) is not None:
        _end_delivery(sender.redlock, call)


def cancel_unstarted(sender: Any, **_: Any) -> None:
    """Cancel the queued call of a task whose ``before_start`` has raised an error. A receiver of ``task_postrun``.

    After such an error, Celery never calls the body, so nothing else would remove the record.
    """
    if not hasattr(sender, "redlock") or ENTERED in vars(request := sender.request) or request.is_eager:
        return
    this = WorkerRun(sender, request)
    if this.message.tries:
        _end_delivery(this.protection, this.call)
    this.protection.cancel(this.call)
