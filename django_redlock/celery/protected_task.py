"""A protected Celery task, as the modules see it that send, run and put off its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from celery import Task

from ..core.flow.requests import Flow
from ..core.locks.lock import Lock
from ..single_instance.call import TaskCall
from ..single_instance.modes import TaskOptions
from .messages import Message


class ProtectingLock(Protocol):
    """The lock of a Celery task. `CeleryTaskLock` implements and documents it."""

    options: TaskOptions
    track_started: bool

    @property
    def keeps_records(self) -> bool: ...
    def message(self, task: Task[Any, Any], request: Any) -> Message: ...
    def new_call(self, task: Task[Any, Any], task_id: str, message: Message) -> TaskCall: ...
    def body_lock(self, call: TaskCall) -> Lock: ...
    def cancel(self, call: TaskCall, same_delivery: bool = True) -> None: ...
    def drive(self, flow: Flow[Any]) -> Any: ...


if TYPE_CHECKING:

    class ProtectedTask(Task[Any, Any]):
        """A task with the members that `SubmitMixin` and `SingleInstanceMixin` add."""

        redlock: ProtectingLock

        def lock_name(self, args: Any, kwargs: Any, serializer: str | None) -> str:
            """Return the lock's name for a call with these arguments."""

        def resend(self, seconds: float, message: Message, producer: Any = None) -> Any:
            """Send the message of the running task again, to start in ``seconds`` seconds."""

else:
    ProtectedTask = Task
