"""A protected Celery task, as the modules see it that send, run and put off its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery import Task

from .messages import Message
from .task_lock import CeleryTaskLock

if TYPE_CHECKING:

    class ProtectedTask(Task[Any, Any]):
        """A task with the members that `SubmitMixin` and `SingleInstanceMixin` add."""

        redlock: CeleryTaskLock

        def lock_name(self, args: Any, kwargs: Any, serializer: str | None) -> str:
            """Return the lock's name for a call with these arguments."""

        def resend(self, seconds: float, message: Message, **options: Any) -> Any:
            """Send the message of the running task again, to start in ``seconds`` seconds."""

else:
    ProtectedTask = Task
