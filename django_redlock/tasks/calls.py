"""The calls of a task of ``django.tasks``: the names of their locks, their records, and the runs of their bodies.

The task backend assigns the id of a call when the call is sent. Before, ``enqueue()`` writes the queued record with a
provisional id. Afterwards it writes the final id to the record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

from django.utils import timezone

from ..call_styles import Blocking
from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError
from ..single_instance.call import UNNAMED, Conflict, TaskCall, conflict_of, new_delivery_id
from ..single_instance.call_names import canonical
from ..single_instance.lifecycle import BodyRun
from ..single_instance.options import TaskOptions
from ..single_instance.records import rename
from ..single_instance.task_lock import TaskLock
from ..transactions import after_rollback
from .framework import base_module

# Name and provisional id of the call that this context is enqueuing. ImmediateBackend runs the body within.
enqueuing: ContextVar[tuple[str, str]] = ContextVar("redlock_enqueuing", default=("", ""))


class DjangoTaskLock(TaskLock):
    """The lock of one task of ``django.tasks``. It derives the lock's name and a `TaskCall` from each call."""

    def __init__(self, options: TaskOptions, task: Any) -> None:
        super().__init__(options, task.func)
        self.path: str = task.module_path
        self._context = (None,) if task.takes_context else ()  # the first argument, which a worker adds
        self._normalize: Callable[[Any], Any] = base_module(task).normalize_json

    def name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the lock's name for these arguments of ``enqueue()``. Raises ``TypeError`` if they don't fit."""
        args, kwargs = self._as_json([args, kwargs])
        return self.namer.name(self.path, tuple(args), kwargs, self._text_of, self._context)

    def _as_json(self, value: Any) -> Any:
        """Return ``value`` as a worker receives it, after a round trip through JSON."""
        return json.loads(json.dumps(self._normalize(value)))

    def _text_of(self, value: Any) -> str:
        return canonical(self._as_json(value), repr)

    def call(self, name: str, task_id: str = "", run_after: Any = None) -> TaskCall:
        """Return a new `TaskCall` of the task, with a new delivery id. ``name``: the lock's name.

        ``task_id``: the id of the call's ``TaskResult``; ``""``: a provisional id is generated. ``run_after``: the
        datetime before which the call does not start, as in ``Task``.
        """
        delivery_id = new_delivery_id()
        delay = 0.0 if run_after is None else max(0.0, (run_after - timezone.now()).total_seconds())
        ttl, done_ttl = self.options.queued_ttl + delay, 0.0  # a call that is delivered again after its end runs again
        return self.task_call(name, self.path, task_id or UNNAMED + delivery_id, delivery_id, ttl, done_ttl, "")


def cancel_after_rollback(lock: DjangoTaskLock, call: TaskCall, result: Any) -> None:
    """Cancel ``call``, whose ``TaskResult`` is ``result``, if the open transaction is rolled back.

    For task backends whose queue is a database table. The record has the provisional id or, once renamed, the final id.
    Both are removed, because the outcome of the rename may be unknown.
    """
    if call.mode.at_submit and (row := getattr(result, "db_result", None)) is not None:
        for each in (call, call._replace(task_id=result.id)):
            after_rollback(row._state.db, partial(lock.cancel, each))


def rename_flow(call: TaskCall, task_id: str) -> Flow[None]:
    """Give the record with the provisional id ``task_id`` the task id of ``call``. Errors are logged and not raised.

    Has no effect if a worker has started the call, because the worker renames the record itself.
    """
    try:
        yield from rename(call, task_id)
    except LockError as error:
        logger.warning("task %s[%s]: its record keeps a provisional id: %s", call.task, call.task_id, error)


class DjangoRun(BodyRun):
    """One run of a task's body. ``is_named``: whether the worker knows the id of the call."""

    same_delivery = False  # the worker doesn't know the delivery id of the record

    def __init__(self, style: Blocking, lock: DjangoTaskLock, name: str, task_id: str) -> None:
        super().__init__(style, lock, lock.call(name, task_id))
        self.is_named = bool(task_id)

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        """Acquire the lock of the body.

        If a worker starts the body before ``enqueue()`` has written the final id, the call is refused by its own
        record. In that case the queued record with a provisional id gets the task id of the call, and the lock is
        acquired again. If the worker doesn't know the call's id, any queued record is taken.
        """
        call = self.call
        if not call.mode.at_submit:
            return (yield from handle.acquire_flow(wait))
        name, provisional = enqueuing.get()
        if name == call.name:
            yield from rename(call, provisional)
        outcome: Hold | Refusal = yield from handle.acquire_flow(0.0)
        if isinstance(outcome, Refusal):
            conflict = conflict_of(call, "start", outcome)
            taken = conflict.state == "queued" and (not conflict.holder or not self.is_named)
            if taken:
                yield from rename(call, conflict.holder or UNNAMED)
            if taken or wait:
                outcome = yield from handle.acquire_flow(wait)
        return outcome

    async def refused(self, conflict: Conflict, action: str, failure: Exception) -> Any:
        """Rename the record if it has a provisional id, then act as `BodyRun.refused`, which removes the record."""
        if self.call.mode.at_submit:
            # The body may have started before enqueue() has renamed the record.
            await self.style.drive(rename_flow(self.call, UNNAMED), self.lock.store)
        return await super().refused(conflict, action, failure)
