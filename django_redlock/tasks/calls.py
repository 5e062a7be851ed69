"""The calls of a task of ``django.tasks``: the lock's names and records, and what it adds to the common flows.

A call gets its id from the task backend. ``enqueue()`` writes the queued record with a provisional id, and the final id
only after it has sent the call.
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
    """The lock of one task of ``django.tasks``. It names the lock of each call, and makes a `TaskCall` of each call."""

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

        ``task_id``: the id of the call's ``TaskResult``. ``""`` if it is not known: the `TaskCall` then gets a
        provisional id. ``run_after``: the datetime before which the call does not start, as in ``Task``.
        """
        delivery_id = new_delivery_id()
        delay = 0.0 if run_after is None else max(0.0, (run_after - timezone.now()).total_seconds())
        ttl, done_ttl = self.options.queued_ttl + delay, 0.0  # a call that is delivered again after its end runs again
        return self.task_call(name, self.path, task_id or UNNAMED + delivery_id, delivery_id, ttl, done_ttl, "")


def cancel_after_rollback(lock: DjangoTaskLock, call: TaskCall, result: Any) -> None:
    """Cancel the call ``result`` if its transaction is rolled back. For task backends whose queue is a table.

    Its record has the provisional id or, after the renaming, the final id. Both are tried, because the reply to the
    renaming may have been lost.
    """
    if call.mode.at_submit and (row := getattr(result, "db_result", None)) is not None:
        for each in (call, call._replace(task_id=result.id)):
            after_rollback(row._state.db, partial(lock.cancel, each))


def rename_flow(call: TaskCall, task_id: str) -> Flow[None]:
    """Give the record with the provisional id ``task_id`` the task id of ``call``. Errors are logged and not raised.

    If a worker has started the call before, it has renamed the record already, and this flow changes nothing.
    """
    try:
        yield from rename(call, task_id)
    except LockError as error:
        logger.warning("task %s[%s]: its record keeps a provisional id: %s", call.task, call.task_id, error)


class DjangoRun(BodyRun):
    """One run of a body. ``is_named``: the worker knows the call's id."""

    same_delivery = False  # the worker doesn't know the delivery id of the record

    def __init__(self, style: Blocking, lock: DjangoTaskLock, name: str, task_id: str) -> None:
        super().__init__(style, lock, lock.call(name, task_id))
        self.is_named = bool(task_id)

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        """Acquire the lock of the body.

        The body may start before ``enqueue()`` has written the final id, and the call's own record then refuses it. So
        a queued record with a provisional id counts as the call's own: it gets the task id of the call, and the lock is
        acquired again. If the worker doesn't know the call's id, any queued record counts as the call's own.
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
        """Cancel the call, if it was queued and a task of another mode with the same key runs."""
        if self.call.mode.at_submit:
            # The body may have started before enqueue() has renamed the record.
            await self.style.drive(rename_flow(self.call, UNNAMED), self.lock.store)
        return await super().refused(conflict, action, failure)
