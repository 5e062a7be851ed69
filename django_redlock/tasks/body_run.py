"""The run of a body of ``django.tasks``, and the id of its call in the record.

The task backend assigns the id of a call when the call is sent. Before, ``enqueue()`` writes the queued record with a
provisional id. Afterwards it writes the final id to the record.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from ..call_styles import Blocking
from ..core.events import logger
from ..core.flow.requests import Flow
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError
from ..single_instance.call import UNNAMED, Conflict, TaskCall, conflict_of
from ..single_instance.lifecycle import BodyRun
from ..single_instance.protection import TaskProtection
from ..single_instance.records import rename

# Name and provisional id of the call that this context is enqueuing. ImmediateBackend runs the body within.
enqueuing: ContextVar[tuple[str, str]] = ContextVar("redlock_enqueuing", default=("", ""))


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

    def __init__(self, style: Blocking, protection: TaskProtection, call: TaskCall, is_named: bool) -> None:
        super().__init__(style, protection, call)
        self.is_named = is_named

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
            await self.style.drive(rename_flow(self.call, UNNAMED), self.protection.store)
        return await super().refused(conflict, action, failure)
