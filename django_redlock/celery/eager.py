"""Runs a task in the calling process, by ``apply()`` or in Celery's eager mode, with its lock held."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from celery import Task, states
from celery.result import EagerResult
from kombu.utils.uuid import uuid

from ..call_styles import Blocking, complete
from ..core.values import Refusal
from ..single_instance.call import ACTIONS, Conflict, conflict_of, duplicate_result, new_delivery_id
from ..single_instance.lifecycle import BodyRun
from .messages import HEADER, Message
from .postponed_messages import send

_PARAMETERS = [*inspect.signature(Task.apply).parameters][3:]  # those after ``self``, ``args`` and ``kwargs``
# Lock name and id of each eager task that encloses this call. Celery runs an eager retry, and a task that replaces
# another, inside the first call and with its id.
_running: ContextVar[tuple[tuple[str, str], ...]] = ContextVar("redlock_eager", default=())


class EagerRun(BodyRun):
    """One run of a task's body in the calling process. Nothing is queued, so the action "retry" is not possible."""

    known = ACTIONS

    def __init__(self, task: Any, message: Message) -> None:
        self.task = task
        super().__init__(Blocking(), task.redlock, task.redlock.call_of(task, message))
        self.on_conflict = "skip"  # until a conflict says which check has refused the call

    def conflict(self, refusal: Refusal) -> Conflict:
        """Return the `Conflict` with the place, "submit" or "start", at which a queued call would have been refused."""
        conflict = conflict_of(self.call, "start", refusal)
        at_submit, self.on_conflict = self.protection.options.actions
        if conflict.state in self.call.mode.at_submit:
            self.on_conflict, conflict = at_submit, conflict._replace(where="submit")
        return conflict

    async def refused(self, conflict: Conflict, action: str, failure: Exception) -> Any:
        """Return the ``EagerResult`` of a duplicate, or raise ``failure``."""
        await super().refused(conflict, action, failure)
        return eager_duplicate(self.task, conflict)

    def send(self, message: bytes) -> None:
        send(self.task.app, message)


def eager_duplicate(task: Any, conflict: Conflict) -> Any:
    """Return the ``EagerResult`` of a duplicate, with the id of the call that holds the lock."""
    task_id, value = conflict.holder or conflict.task_id, duplicate_result(conflict)
    result: Any = EagerResult(task_id, value, states.SUCCESS, name=task.name)
    result.duplicate = True
    return result


def apply(task: Any, call: Callable[..., Any], args: Any, kwargs: Any, *rest: Any, **options: Any) -> Any:
    """Run the task in this process with its lock held. Returns the ``EagerResult``, with an attribute ``duplicate``.

    ``call``: Celery's own ``apply``. The result of a duplicate has ``duplicate=True`` and `duplicate_result` as its
    value. Raises ``LockNotAcquired`` for a duplicate with ``on_conflict="raise"`` or ``"wait"``, ``LockUnavailable``
    when the store is unavailable.
    """
    options |= zip(_PARAMETERS, rest, strict=False)
    task_id = options["task_id"] = options.get("task_id") or uuid()
    headers = options.get("headers") or {}
    message = Message.read(headers.get(HEADER), task_id) or Message(
        task.redlock.name(task, args, kwargs, options.get("serializer"), headers), new_delivery_id(), task_id
    )

    async def call_as_holder() -> Any:
        token = _running.set((*_running.get(), (message.name, task_id)))
        try:
            result = call(args, kwargs, **options)
        finally:
            _running.reset(token)
        result.duplicate = False
        return result

    if (message.name, task_id) in _running.get():
        return call(args, kwargs, **options)
    return complete(EagerRun(task, message).run(call_as_holder))
