"""The classes that are put around a task's own: the fence at ``apply_async``, and the one before the body."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from celery import Task
from celery.result import AsyncResult
from kombu.utils.uuid import uuid

from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.values import Lease, Refusal
from ..errors import LockUnavailable
from . import eager, execution
from .cleanup import request_class
from .conflicts import AT_SUBMIT, Conflict, conflict_of, decide, flag_result, notify_duplicate
from .contract import ProtectedTask
from .records import TaskCall, submit
from .task_lock import HEADER, Message, TaskLock, delay_of, expiry_of, new_delivery_id

# Options that only canvas gives to apply_async: somebody waits for exactly this message.
_CANVAS_OPTIONS = {"chain", "chord", "group_id", "parent_id", "root_id"}
_POLL = 0.05

if TYPE_CHECKING:
    from ..core.algorithms.single_node import SingleNode

    _Task = ProtectedTask
else:
    _Task = Task


class SubmitMixin(_Task):
    """The fence at ``apply_async``. It stands behind the task's own bases: what they make of a call is what counts."""

    redlock: TaskLock

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        link: Any = None,
        link_error: Any = None,
        shadow: str | None = None,
        **options: Any,
    ) -> Any:
        """Send the task, unless its lock is held by another call. A duplicate's result has ``duplicate`` set to True,
        and is that of the task in its way.

        Raises ``LockNotAcquired`` for a duplicate with ``on_conflict="raise"``, ``LockUnavailable`` when the store
        can't be asked.
        """

        def send(**changed: Any) -> Any:
            result = super(SubmitMixin, self).apply_async(
                args, kwargs, task_id, producer, link, link_error, shadow, **{**options, **changed}
            )
            return flag_result(result, getattr(result, "duplicate", False))

        guard = self.redlock
        fenced = bool(guard.options.mode.at_submit)
        if fenced and eager.is_always_eager(self.app.conf):
            return send()  # which comes to `apply`
        current = self.request_stack.top if task_id else None  # what retries itself says which it is
        task_id = task_id or uuid()
        message = Message(self.lock_name(args, kwargs, options.get("serializer")), new_delivery_id(), task_id)
        headers = {"headers": {**(options.get("headers") or {}), HEADER: list(message)}}
        if not fenced:
            return send(**headers)
        ticket = guard.new_call(self, task_id, message, delay_of(self, options), expiry_of(self, options))
        own = (current is not None and current.id == task_id) or bool(options.get("retries"))
        canvas = any(options[name] is not None for name in _CANVAS_OPTIONS.intersection(options))
        try:
            outcome = self._submit(ticket, own, own or canvas)
        except LockUnavailable as error:
            # A retry, or the next step of a canvas, would be lost with the task that sends it: the worker decides.
            if not (guard.options.run_unprotected or own or (canvas and self.app.current_worker_task is not None)):
                raise
            logger.warning("task %s[%s] is sent without a record: %s", self.name, task_id, error)
            return send(**headers)
        if isinstance(outcome, Conflict):
            result = flag_result(self.AsyncResult(outcome.holder or task_id), True)
            result.ignored = options.get("ignore_result", self.ignore_result)  # as Celery's own: get() doesn't wait
            return result
        try:
            return send(**headers)
        except BaseException:
            if outcome is not None:
                guard.cancel(ticket)
            raise

    def lock_name(self, args: Any, kwargs: Any, serializer: str | None) -> str:
        if (dump := getattr(self, "_dump_pydantic_arguments", None)) is not None:
            args, kwargs = dump(args, kwargs)
        try:
            return self.redlock.name(self, args, kwargs, serializer)
        except TypeError:
            if self.typing:
                self.__header__(  # type: ignore[attr-defined]
                    *(args or ()), **(kwargs or {})
                )  # Celery's own words, where it checks as well
            raise

    def _submit(self, call: TaskCall, own: bool, must_send: bool) -> Lease | Conflict | None:
        """The queued record; ``None`` to send without one: the worker will decide; or the conflict that forbids it."""
        guard, store = self.redlock, self.redlock.store
        rule, action = cast("SingleNode", store.algorithm), guard.options.at_submit
        deadline = time.monotonic() + guard.options.wait
        word: Any = action
        while True:
            outcome = drive(submit(call, own, word == "replace", rule), store.perform)
            if isinstance(outcome, Lease):
                return outcome
            if must_send:
                return None
            conflict = self._conflict(call, outcome)
            if callable(word):
                word = decide(action, conflict, AT_SUBMIT)
                if word == "replace":
                    continue
            if word != "wait" or time.monotonic() > deadline:
                break
            time.sleep(min(_POLL, guard.options.wait))
        notify_duplicate(conflict, word == "log")
        if word in ("raise", "wait"):
            raise conflict.error()
        return conflict

    def _conflict(self, call: TaskCall, refusal: Refusal) -> Conflict:
        return conflict_of(self.name, call.task_id, call.name, "submit", refusal)

    def resend(self, seconds: float, message: Message) -> AsyncResult[Any]:
        """Send the running message again, to come back in ``seconds``; it stays the same sending."""
        request = self.request
        again = self.signature_from_request(request, countdown=seconds, retries=request.retries)
        headers = {**(again.options.pop("headers", None) or {}), HEADER: list(message)}
        return super().apply_async(again.args, again.kwargs, headers=headers, **again.options)


if TYPE_CHECKING:
    _Fenced = SubmitMixin
else:
    _Fenced = Task  # a real base would pull `SubmitMixin` before the bases of a task's base


class SingleInstanceMixin(_Fenced):
    """What `single_instance_task` adds to a task, in front of its own bases. ``redlock`` is the declaration."""

    @property
    def Request(self) -> Any:  # type: ignore[override]  # noqa: N802  (Celery's name)
        """The class of requests in a worker's main process, which sees what becomes of its children."""
        return request_class(super().Request)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Celery calls `run` unless a base has a `__call__` of its own, so that the body sees the worker's request.
        return self.run_body(super().__call__ if self.redlock.has_call else self.run, args, kwargs)

    def run_body(self, body: Any, args: Any, kwargs: Any) -> Any:
        """Run the body: behind the fence in a worker, as it is where it is called, and where it has begun already."""
        request = self.request
        if request.called_directly or request.is_eager or execution.ENTERED in vars(request):
            return body(*args, **kwargs)
        return execution.run(self, request, body, args, kwargs)

    def on_replace(self, sig: Any) -> Any:
        """Celery's handler of ``replace()``. In eager mode the signature runs here, within the body and its lock."""
        with eager.replacing(self.request.id):
            return super().on_replace(sig)

    def apply(self, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        """Take the lock, run the task here and now, and free the lock."""
        return eager.apply(self, super().apply, args, kwargs, *rest, **options)
