"""The mixins of a protected Celery task.

`SubmitMixin` writes the record of a queued call to the lock store when the call is sent. `SingleInstanceMixin` holds
the lock while the body of the task runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from celery import Task
from celery.result import AsyncResult
from kombu.utils.uuid import uuid

from ..core.events import logger
from ..core.flow.drivers import drive
from ..core.process.clock import monotonic
from ..core.values import Refusal
from ..errors import LockUnavailable
from ..single_instance.call import TaskCall
from ..single_instance.conflicts import AT_SUBMIT, Conflict, conflict_of, decide, flag_result, notify_duplicate
from ..single_instance.ended_deliveries import new_delivery_id
from ..single_instance.transitions import submit
from . import eager, execution
from .cleanup import request_of
from .messages import ENTERED, HEADER, Message, delay_of, expiry_of, sent_headers
from .protected_task import ProtectedTask
from .task_lock import CeleryTaskLock

# Options of apply_async that only a canvas sets. The next step of the canvas waits for exactly this message.
_CANVAS_OPTIONS = {"chain", "chord", "group_id", "parent_id", "root_id"}
_POLL_SECONDS = 0.05

if TYPE_CHECKING:
    from ..core.algorithms.replicated import Replicated
    from ..core.algorithms.single_node import SingleNode

    _Task = ProtectedTask
else:
    _Task = Task


class SubmitMixin(_Task):
    """Mixin whose ``apply_async`` writes the record of a queued call before it sends the message.

    It comes after the task's own base classes, because their ``apply_async`` may change the arguments of the call.
    """

    redlock: CeleryTaskLock

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
        """Send the task, unless another call holds its lock. The result has an attribute ``duplicate``.

        A duplicate's result has ``duplicate=True`` and the id of the call that holds the lock. Raises
        ``LockNotAcquired`` for a duplicate with ``on_conflict="raise"`` or ``"wait"``, ``LockUnavailable`` when the
        store is unavailable.
        """

        def send(**changed: Any) -> Any:
            result = super(SubmitMixin, self).apply_async(
                args, kwargs, task_id, producer, link, link_error, shadow, **{**options, **changed}
            )
            return flag_result(result, getattr(result, "duplicate", False))

        if not hasattr(self, "redlock"):
            return super().apply_async(args, kwargs, task_id, producer, link, link_error, shadow, **options)
        if (again := _resent.get()) is not None and again.task_id == task_id:
            headers = {**(options.pop("headers", None) or {}), **again.headers}
            options |= {"producer": again.producer or producer, "headers": headers}
            return super().apply_async(
                again.args, again.kwargs, task_id, link=link, link_error=link_error, shadow=shadow, **options
            )
        task_lock = self.redlock
        queues = bool(task_lock.options.mode.at_submit)
        if queues and eager.is_always_eager(self.app.conf):
            return send()  # Celery calls `apply`, which acquires the lock
        own = _is_own_retry(self, task_id, options)
        task_id = task_id or uuid()
        serializer = options.get("serializer")
        name = self.lock_name(args, kwargs, serializer)
        message = Message(name, new_delivery_id(), task_id, serializer=serializer or "")
        headers = {**(options.get("headers") or {}), HEADER: list(message)}
        if not queues:
            return send(headers=headers)
        call = task_lock.new_call(self, task_id, message, delay_of(self, options), expiry_of(self, options))
        canvas = any(options[name] is not None for name in _CANVAS_OPTIONS.intersection(options))
        try:
            outcome = self._submit(call, own, own or canvas)
        except LockUnavailable as error:
            # An error would end the task that sends a retry or the next step of a canvas, and the call would be lost.
            # The call is sent without a record, and the worker decides when it starts the body.
            if not (task_lock.options.run_unprotected or own or (canvas and self.app.current_worker_task is not None)):
                if error.unconfirmed:  # its record would make every later call a duplicate of a call that was not sent
                    task_lock.cancel(call)
                raise
            logger.warning("task %s[%s] is sent without a record: %s", self.name, task_id, error)
            return send(headers=headers)
        if isinstance(outcome, Conflict):
            return _result_of_duplicate(self, outcome, options)
        try:
            return send(headers=headers)
        except BaseException:
            if outcome == "queued":
                task_lock.cancel(call)
            raise

    def lock_name(self, args: Any, kwargs: Any, serializer: str | None) -> str:
        """Return the lock's name for a call with these arguments.

        ``serializer``: the kombu serializer of the message; ``None``: the task's own. Raises Celery's ``TypeError``
        for arguments that don't fit the task.
        """
        if (dump := getattr(self, "_dump_pydantic_arguments", None)) is not None:
            args, kwargs = dump(args, kwargs)
        try:
            return self.redlock.name(self, args, kwargs, serializer)
        except TypeError:
            if self.typing and hasattr(self, "__header__"):  # a class has none
                self.__header__(*(args or ()), **(kwargs or {}))  # raises with Celery's own message
            raise

    def _submit(self, call: TaskCall, own: bool, must_send: bool) -> Literal["queued", "refused"] | Conflict:
        """Write the record of the queued call. Returns "queued", or a `Conflict` when the call must not be sent.

        Returns "refused" for a call that must be sent anyway: a worker then decides when it starts the body. ``own``:
        the call is a retry by the task that owns the record. ``must_send``: the call is sent even if it is refused.
        Raises ``LockNotAcquired`` as `apply_async` does, and ``LockUnavailable``.
        """
        store, options = self.redlock.store, self.redlock.options
        algorithm, on_conflict = cast("SingleNode | Replicated", store.algorithm), options.at_submit
        deadline = monotonic() + options.wait
        action: Any = on_conflict
        while True:
            refusal: Refusal | None = drive(submit(call, own, action == "replace", algorithm), store.perform)
            if refusal is None:
                return "queued"
            if must_send:
                return "refused"
            conflict = conflict_of(self.name, call.task_id, call.name, "submit", refusal)
            if callable(action):
                action = decide(on_conflict, conflict, AT_SUBMIT)
                if action == "replace":
                    continue
            if action != "wait" or refusal.final or monotonic() > deadline:
                break
            time.sleep(min(_POLL_SECONDS, options.wait))
        notify_duplicate(conflict, action == "log")
        if action in ("raise", "wait"):
            raise conflict.error()
        return conflict

    def resend(self, seconds: float, message: Message, producer: Any = None) -> AsyncResult[Any]:
        """Send the message of the running task again, to start in ``seconds`` seconds. Returns the ``AsyncResult``.

        The copy has the arguments, headers and options of the running message, and what ``apply_async`` of the task's
        base classes adds. ``message``: the header of the new message, which keeps the delivery id. ``producer``: the
        kombu producer that sends it.
        """
        request: Any = self.request
        signature = self.signature_from_request(request, countdown=seconds, retries=request.retries)
        options = {**signature.options, "argsrepr": request.get("argsrepr"), "kwargsrepr": request.get("kwargsrepr")}
        if message.serializer:
            options["serializer"] = message.serializer
        options["headers"] = headers = {**sent_headers(request), HEADER: list(message)}
        token = _resent.set(Resent(request.id, signature.args, signature.kwargs, headers, producer))
        try:
            result: AsyncResult[Any] = self.apply_async(signature.args, signature.kwargs, **options)
            return result
        finally:
            _resent.reset(token)


class Resent(NamedTuple):
    """The message that `SubmitMixin.resend` sends again: what ``apply_async`` of a base class must not change."""

    task_id: str
    args: Any
    kwargs: Any
    headers: dict[str, Any]
    producer: Any


_resent: ContextVar[Resent | None] = ContextVar("redlock_resent", default=None)


def _is_own_retry(task: Any, task_id: str | None, options: Mapping[str, Any]) -> bool:
    """Return whether ``apply_async`` with these arguments sends a retry, which has the id of the running call."""
    running = task.request_stack.top if task_id else None
    return (running is not None and running.id == task_id) or bool(options.get("retries"))


def _result_of_duplicate(task: Any, conflict: Conflict, options: Mapping[str, Any]) -> Any:
    """Return the result of a call that is not sent: the ``AsyncResult`` of the call in the way."""
    result = flag_result(task.AsyncResult(conflict.holder or conflict.task_id), True)
    result.ignored = options.get("ignore_result", task.ignore_result)  # as in Celery: get() doesn't wait then
    return result


if TYPE_CHECKING:
    _Submitting = SubmitMixin
else:
    _Submitting = Task  # a real base class would move `SubmitMixin` in front of the bases of a task's base


class SingleInstanceMixin(_Submitting):
    """Mixin that holds the lock while the body of the task runs. It precedes the task's own base classes."""

    @property
    def Request(self) -> Any:  # type: ignore[override]  # noqa: N802  (Celery's name)
        """The class of received messages in a worker's main process. Its objects release locks of dead processes."""
        return request_of(self, super().Request)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inherited: Any = super().__call__
        if inherited != MethodType(Task.__call__, self):  # that of a base of the task
            return self.run_body(inherited, args, kwargs)
        request: Any = self.request
        if request.called_directly or request._protected:
            return inherited(*args, **kwargs)  # a direct call, for which Celery pushes another request
        # Celery calls `run` unless a class defines `__call__`, so that the body sees the worker's request.
        request._protected = 1  # Celery's mark of a request whose body has begun
        return self.run_body(self.run, args, kwargs)

    def run_body(self, body: Any, args: Any, kwargs: Any) -> Any:
        """Run the callable ``body`` and return its value. In a worker, the lock is held meanwhile.

        No lock is acquired here for a task without a lock, a direct call, an eager call, or a call that the body makes
        itself.
        """
        request = self.request
        unlocked = not hasattr(self, "redlock") or request.called_directly or request.is_eager
        if unlocked or ENTERED in vars(request):
            return body(*args, **kwargs)
        return execution.run(self, request, body, args, kwargs)

    def on_replace(self, sig: Any) -> Any:
        """Let the replacing task of ``replace()`` share the lock of this body in eager mode. Called by Celery.

        In eager mode, the replacing task runs before this method returns, while the body still holds its lock.
        """
        with eager.replacing(self.request.id):
            return super().on_replace(sig)

    def apply(self, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        """Acquire the lock, run the task in this process, and release the lock."""
        if not hasattr(self, "redlock"):
            return super().apply(args, kwargs, *rest, **options)
        return eager.apply(self, super().apply, args, kwargs, *rest, **options)
