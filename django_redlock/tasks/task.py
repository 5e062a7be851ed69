"""`ProtectedDjangoTask`: a task of ``django.tasks`` whose calls hold a lock.

The task backend assigns the id of a call when the call is sent. Before, ``enqueue()`` writes the queued record with a
provisional id. Afterwards it writes the final id to the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any

from django.utils import timezone

from ..call_styles import Awaiting, Blocking, complete, run_to_end
from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError
from ..single_instance.call import UNNAMED, Conflict, TaskCall, conflict_of, new_delivery_id
from ..single_instance.lifecycle import BodyRun, submit_call
from ..single_instance.lock_names import canonical
from ..single_instance.options import TaskOptions
from ..single_instance.protection import TaskProtection, declared
from ..single_instance.records import rename
from ..transactions import after_rollback
from .framework import base_module, duplicate_of

_ATTRIBUTE = "__redlock_task__"  # attribute of the task's function that holds its `DjangoProtection`
# Name and provisional id of the call that this context is enqueuing. ImmediateBackend runs the body within.
_enqueuing: ContextVar[tuple[str, str]] = ContextVar("redlock_enqueuing", default=("", ""))
# The function and the id of the call that a worker has announced and is about to run.
_announced: ContextVar[tuple[Any, str] | None] = ContextVar("redlock_announced", default=None)


class DjangoProtection(TaskProtection):
    """The protection of one task of ``django.tasks``. It derives the lock's name and a `TaskCall` from each call."""

    def __init__(self, options: TaskOptions, task: Any) -> None:
        super().__init__(options, task.func, (None,) if task.takes_context else ())  # a worker adds the context
        self.path: str = task.module_path
        self._normalize: Callable[[Any], Any] = base_module(task).normalize_json

    def name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the lock's name for these arguments of ``enqueue()``.

        Raises ``TypeError`` if the task does not take these arguments.
        """
        args, kwargs = self._as_json([args, kwargs])
        return self.lock_names.name(self.path, tuple(args), kwargs, self._text_of)

    def new_call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], task_id: str = "", run_after: Any = None
    ) -> TaskCall:
        """Return a `TaskCall` for these arguments of ``enqueue()``, with a new delivery id.

        ``task_id``: the id of the call's ``TaskResult``; ``""``: a provisional id is generated. ``run_after``: the
        datetime before which the call does not start, as in ``Task``. Raises the errors of `name`.
        """
        name, delivery_id = self.name(args, kwargs), new_delivery_id()
        delay = 0.0 if run_after is None else max(0.0, (run_after - timezone.now()).total_seconds())
        ttl, done_ttl = self.options.queued_ttl + delay, 0.0  # a call that is delivered again after its end runs again
        return self.task_call(name, self.path, task_id or UNNAMED + delivery_id, delivery_id, ttl, done_ttl, "")

    def _as_json(self, value: Any) -> Any:
        """Return ``value`` as a worker receives it, after a round trip through JSON."""
        return json.loads(json.dumps(self._normalize(value)))

    def _text_of(self, value: Any) -> str:
        return canonical(self._as_json(value), repr)


def cancel_after_rollback(protection: DjangoProtection, call: TaskCall, result: Any) -> None:
    """Cancel ``call``, whose ``TaskResult`` is ``result``, if the open transaction is rolled back.

    For task backends whose queue is a database table. The record has the provisional id or, once renamed, the final id.
    Both are removed, because the outcome of the rename may be unknown.
    """
    if call.mode.at_submit and (row := getattr(result, "db_result", None)) is not None:
        for each in (call, call._replace(task_id=result.id)):
            after_rollback(row._state.db, partial(protection.cancel, each))


class DjangoRun(BodyRun):
    """One run of a task's body."""

    same_delivery = False  # the worker doesn't know the delivery id of the record

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        """Acquire the lock of the body.

        If a worker starts the body before ``enqueue()`` has written the final id, the call is refused by its own
        record. In that case the queued record with a provisional id gets the task id of the call, and the lock is
        acquired again. If the worker doesn't know the call's id, any queued record is taken.
        """
        call = self.call
        if not call.mode.at_submit:
            return (yield from handle.acquire_flow(wait))
        name, provisional = _enqueuing.get()
        if name == call.name:
            yield from rename(call, provisional)
        outcome: Hold | Refusal = yield from handle.acquire_flow(0.0)
        if isinstance(outcome, Refusal):
            conflict = conflict_of(call, "start", outcome)
            taken = conflict.state == "queued" and (not conflict.holder or call.task_id.startswith(UNNAMED))
            if taken:
                yield from rename(call, conflict.holder or UNNAMED)
            if taken or wait:
                outcome = yield from handle.acquire_flow(wait)
        return outcome

    async def refused(self, conflict: Conflict, action: str, failure: Exception) -> Any:
        """Rename the record if it has a provisional id, then act as `BodyRun.refused`, which removes the record."""
        if self.call.mode.at_submit:
            # The body may have started before enqueue() has renamed the record.
            await self.style.drive(_rename_flow(self.call, UNNAMED), self.protection.store)
        return await super().refused(conflict, action, failure)


def _rename_flow(call: TaskCall, task_id: str) -> Flow[None]:
    """Give the record with the provisional id ``task_id`` the task id of ``call``. Errors are logged and not raised.

    Has no effect if a worker has started the call, because the worker renames the record itself.
    """
    try:
        yield from rename(call, task_id)
    except LockError as error:
        logger.warning("task %s[%s]: its record keeps a provisional id: %s", call.task, call.task_id, error)


_Task: Any = object  # the framework's class ``Task`` stands beside the mixin, see `_protected_class`


class ProtectedDjangoTask(_Task):  # type: ignore[misc]
    """Mixin for the framework's ``Task`` class. A call holds a lock while it runs and, in some modes, while queued."""

    __slots__ = ()

    @property
    def redlock(self) -> DjangoProtection:
        """The protection of the task: an attribute of the task's function, which copies made by ``using()`` share."""
        protection: DjangoProtection = getattr(self.func, _ATTRIBUTE)
        return protection

    def enqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task, unless another call holds its lock. Returns the ``TaskResult``.

        For the result of a duplicate, `is_duplicate` returns ``True``. Raises ``LockNotAcquired`` for a duplicate with
        ``on_conflict="raise"``, ``LockUnavailable`` when the store is unavailable.
        """
        return complete(self._enqueue(Blocking(), super().enqueue, args, kwargs))

    async def aenqueue(self, *args: Any, **kwargs: Any) -> Any:
        """Enqueue the task as `enqueue` does, under asyncio."""
        return await self._enqueue(Awaiting(), super().aenqueue, args, kwargs)

    async def _enqueue(self, style: Blocking, enqueue: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        protection = self.redlock
        call = protection.new_call(args, kwargs, run_after=self.run_after)

        async def send() -> Any:
            token = _enqueuing.set((call.name, call.task_id))
            try:
                result = await style.call(partial(enqueue, *args, **kwargs))
            finally:
                _enqueuing.reset(token)
            await style.query(cancel_after_rollback, protection, call, result)
            return result

        result = await submit_call(style, protection, call, send)
        if isinstance(result, Conflict):
            return duplicate_of(self, args, kwargs, result)
        if call.mode.at_submit:
            await style.drive(_rename_flow(call._replace(task_id=result.id), call.task_id), protection.store)
        return result

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body with its lock held, as a worker does. Returns its value. ``func()`` runs it without a lock."""
        style = Blocking()
        return complete(self._run(style, args, kwargs).run(partial(style.call, partial(super().call, *args, **kwargs))))

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body as `call` does, under asyncio.

        If the caller is cancelled, a body that runs in a thread runs to its end and keeps its lock until then.
        """
        acall, cancellable = super().acall, iscoroutinefunction(self.func)
        return await self._run(Awaiting(), args, kwargs).run(
            lambda: run_to_end(acall(*args, **kwargs), cancellable=lambda: cancellable)
        )

    def _run(self, style: Blocking, args: Any, kwargs: Any) -> DjangoRun:
        announced = _announced.get()
        _announced.set(None)
        task_id = announced[1] if announced is not None and announced[0] is self.func else ""
        sent = args
        if self.takes_context:
            context, *sent = args
            task_id = getattr(getattr(context, "task_result", None), "id", task_id)
        protection = self.redlock
        return DjangoRun(style, protection, protection.new_call(sent, kwargs, task_id))


@cache
def _protected_class(base: Any) -> Any:
    return type("ProtectedTask", (ProtectedDjangoTask, base), {"__slots__": ()})


def protect(task: Any, options: TaskOptions) -> Any:
    """Return a copy of ``task`` whose calls have a lock. Raises ``TypeError`` if its function is protected already."""
    if hasattr(task.func, _ATTRIBUTE):
        raise TypeError(f"{task.module_path} has a single_instance_task already")
    setattr(task.func, _ATTRIBUTE, DjangoProtection(options, task))
    with suppress(TypeError):
        declared[task.func] = options
    signals = import_module(f"{base_module(task).__package__}.signals")
    signals.task_started.connect(_announce, dispatch_uid="django_redlock.tasks")
    made: Any = type(task)
    return _protected_class(made)(**{each.name: getattr(task, each.name) for each in fields(task) if each.init})


def _announce(task_result: Any, **_: Any) -> None:
    """Store the id of the call that a worker is about to run, because ``call()`` gets only the arguments.

    A receiver of the framework's signal ``task_started``.
    """
    _announced.set((task_result.task.func, task_result.id))
