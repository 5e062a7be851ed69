"""The classes of a protected Celery task.

`SubmitMixin` writes the record of a queued call to the lock store when the call is sent. `SingleInstanceMixin` holds
the lock while the body of the task runs. `SingleInstance` is a base class with both.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial, wraps
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn

from celery import Task
from celery.result import AsyncResult
from celery.signals import task_postrun
from kombu.utils.uuid import uuid

from ..call_styles import Blocking, complete
from ..single_instance.call import Conflict, new_delivery_id
from ..single_instance.lifecycle import submit_call
from ..single_instance.options import OPTIONS, TaskOptions, checked_options
from . import eager
from .main_process import CheckTasks, request_of
from .messages import ENTERED, HEADER, CeleryProtection, Message, enter, sent_headers
from .worker_run import cancel_unstarted, run_in_worker

OPTIONS_ATTRIBUTE = "__redlock__"  # attribute of a decorated function that holds its `TaskOptions`

# Options of celery-once and celery-singleton, and what to use.
OLD_OPTIONS = {
    "once": "mode, key or unique_on, queue_ttl and on_conflict on the task",
    "raise_on_duplicate": 'on_conflict="raise" on the task',
    "lock_expiry": "queue_ttl on the task",
}
# Options of apply_async that only a canvas sets. The next step of the canvas waits for exactly this message.
_CANVAS_OPTIONS = {"chain", "chord", "group_id", "parent_id", "root_id"}


def refuse_old_options(given: Iterable[str], where: str) -> None:
    """Raise ``TypeError`` for an option of celery-once or celery-singleton. ``where``: the beginning of the message."""
    for name in given:
        if name in OLD_OPTIONS:
            raise TypeError(f"{where} has no option {name!r}: use {OLD_OPTIONS[name]}")


if TYPE_CHECKING:
    _Task = Task[Any, Any]
else:
    _Task = Task


class SubmitMixin(_Task):
    """Mixin whose ``apply_async`` writes the record of a queued call before it sends the message.

    It stands after the task's own base classes, because their ``apply_async`` may change the arguments of the call.
    """

    redlock: CeleryProtection

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
        # By name: ``apply_async`` of a base class after this one may take the rest as ``**options``.
        options |= {"producer": producer, "link": link, "link_error": link_error, "shadow": shadow}
        if not hasattr(self, "redlock"):
            return super().apply_async(args, kwargs, task_id=task_id, **options)
        refuse_old_options(options, f"{self.name}.apply_async()")
        is_current = task_id is not None and self.request.id == task_id
        own, headers = is_current or bool(options.get("retries")), options.pop("headers", None) or {}
        if is_current:
            headers = {**sent_headers(self.request), **headers}  # Celery drops headers beside one named ``headers``
        task_id, serializer = task_id or uuid(), options.get("serializer")
        protection = self.redlock
        name = protection.name(self, args, kwargs, serializer, headers)
        prefix = protection.records.backend.tenant_prefix
        message = Message(name, new_delivery_id(), task_id, serializer=serializer or "", prefix=prefix)
        headers = {**headers, HEADER: message.header}

        async def send() -> Any:
            result: Any = super(SubmitMixin, self).apply_async(
                args, kwargs, task_id=task_id, headers=headers, **options
            )
            result.duplicate = getattr(result, "duplicate", False)
            return result

        if not protection.options.states.at_submit:
            return complete(send())
        call = protection.call_of(self, message, options)
        # An error would end the task that sends a retry or the next step of a canvas, and the call would be lost.
        canvas = any(options[name] is not None for name in _CANVAS_OPTIONS.intersection(options))
        survives = own or (canvas and self.app.current_worker_task is not None)
        flags = {"own": own, "must_send": own or canvas, "must_survive": survives}
        result = complete(submit_call(Blocking(), protection, call, send, **flags))
        return _result_of_duplicate(self, result, options) if isinstance(result, Conflict) else result

    def resend(self, seconds: float, message: Message, producer: Any = None) -> AsyncResult[Any]:
        """Send the message of the running task again, to start in ``seconds`` seconds. Returns the ``AsyncResult``.

        The copy has the arguments, headers and options of the running message. ``apply_async`` of the task's base
        classes is not called again. ``message``: the lock header of the copy, with the same delivery id. ``producer``:
        the kombu producer to use.
        """
        request: Any = self.request
        signature = self.signature_from_request(request, countdown=seconds, retries=request.retries)
        options = {
            **signature.options,
            "argsrepr": request.get("argsrepr"),
            "kwargsrepr": request.get("kwargsrepr"),
            "headers": {**sent_headers(request), HEADER: message.header},
            "producer": producer,
        }
        if message.serializer:
            options["serializer"] = message.serializer
        return super().apply_async(signature.args, signature.kwargs, **options)


def _result_of_duplicate(task: Any, conflict: Conflict, options: Mapping[str, Any]) -> Any:
    """Return the result of a call that is not sent: the ``AsyncResult`` of the call that holds the lock.

    ``options``: the options of ``apply_async``. With ``task_always_eager``, returns a finished ``EagerResult``.
    """
    if task.app.conf.task_always_eager:
        return eager.eager_duplicate(task, conflict)
    result: Any = task.AsyncResult(conflict.holder or conflict.task_id)
    result.duplicate = True
    result.ignored = options.get("ignore_result", task.ignore_result)  # as in Celery: get() doesn't wait then
    if task.backend.as_uri() == "rpc://" and not result.ignored:
        result.get = result.wait = _never_arrives
    return result


def _never_arrives(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        "the result of a duplicate never arrives with rpc://, which sends each result to the process that sent the "
        "first call: use another result backend, or ask is_duplicate(result) before get()"
    )


if TYPE_CHECKING:
    _Submitting = SubmitMixin
else:
    _Submitting = Task  # a real base class would move `SubmitMixin` in front of the bases of a task's base


class SingleInstanceMixin(_Submitting):
    """Mixin that holds the lock while the body of the task runs. It precedes the task's own base classes."""

    @property
    def Request(self) -> Any:  # type: ignore[override]  # noqa: N802  (Celery's name)
        """The class for received messages in a worker's main process. It releases the locks of dead processes."""
        return request_of(self, super().Request)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run_body(super().__call__, args, kwargs)

    def run_body(self, body: Any, args: Any, kwargs: Any) -> Any:
        """Run ``body``, a ``__call__`` of the task, and return its value. In a worker, the lock is held meanwhile.

        No lock is acquired here for an unprotected task, a direct call, an eager call (`apply` acquires its lock), or a
        call that the body makes itself.
        """
        request: Any = self.request
        if request.called_directly or ENTERED in vars(request):
            return body(*args, **kwargs)
        if body == MethodType(Task.__call__, self):  # which would hide the worker's request from the body
            body = self.run
        if not hasattr(self, "redlock") or request.is_eager:
            enter(request)
            return body(*args, **kwargs)
        return run_in_worker(self, request, body, args, kwargs)

    def apply(self, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any) -> Any:
        """Acquire the lock, run the task in this process, and release the lock."""
        if not hasattr(self, "redlock"):
            return super().apply(args, kwargs, *rest, **options)
        return eager.apply(self, super().apply, args, kwargs, *rest, **options)


def function_of(task: type[Any]) -> tuple[Any, tuple[None, ...]]:
    """Return the function of a task's body, and ``this`` for `LockNamer`: ``(None,)`` if it takes ``self``."""
    run: Any = inspect.getattr_static(task, "run", None)
    return (run.__func__, ()) if isinstance(run, staticmethod) else (run, (None,))


def protect(task: type[Any], options: TaskOptions) -> None:
    """Set ``task.redlock``. Wrap ``__call__`` and ``Request`` if the class ``task`` overrides the mixin's."""
    function, this = function_of(task)
    task.redlock = CeleryProtection(options, function, this)
    if any("__call__" in vars(each) for each in task.__mro__[: task.__mro__.index(SingleInstanceMixin)]):
        call = task.__call__
        task.__call__ = wraps(call)(lambda self, *args, **kwargs: self.run_body(partial(call, self), args, kwargs))
    if task.before_start is not Task.before_start:
        task_postrun.connect(cancel_unstarted)  # not for each task: a receiver costs time
    own: Any = task.Request
    if not isinstance(own, property):  # the task's class defines Request, which hides the mixin's
        task.Request = property(lambda self: request_of(self, own))


def bound_to(task: type[Any], app: Any) -> None:
    """Make workers of ``app`` check the task when they start, and turn off the task's ``track_started``.

    The state STARTED is stored by `WorkerRun.before_body`, not by Celery. If ``task`` has no lock, but a base class has
    one, the ``track_started`` that was turned off in the base class is restored for ``task``.
    """
    owned = [found for each in task.__mro__ if isinstance(found := vars(each).get("redlock"), CeleryProtection)]
    tracked = bool(task.track_started) or any(each.track_started for each in owned)
    if isinstance(own := vars(task).get("redlock"), CeleryProtection):
        own.track_started, task.track_started = tracked, False
        app.steps["worker"].add(CheckTasks)
    elif owned:
        task.track_started = tracked


class SingleInstance(SingleInstanceMixin, SubmitMixin):
    """A base class for tasks. The options of ``single_instance_task`` are class attributes.

    The options may also be given to ``@app.task(base=SingleInstance, key="settle:{id}")``.
    """

    abstract = True

    @property
    def redlock(self) -> CeleryProtection:  # type: ignore[override]
        """The protection of the task. Raises ``TypeError`` if the task was bound without one."""
        raise TypeError(f"task {self.name} has no lock: its on_bound() must call super().on_bound(app)")

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Protect a task that Celery has bound to ``app``. Celery calls this method.

        Raises ``TypeError`` and ``ValueError`` for invalid options.
        """
        super().on_bound(app)
        function, _ = function_of(cls)
        if not ("redlock" in vars(cls) or hasattr(function, OPTIONS_ATTRIBUTE) or function is Task.run):
            refuse_old_options((name for name in OLD_OPTIONS if hasattr(cls, name)), f"task {cls.name}")
            given = {name: getattr(cls, name) for name in OPTIONS if hasattr(cls, name)}
            protect(cls, checked_options(given))
        bound_to(cls, app)
