"""One call of a task, as the records keep it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...core.keys import Keys
from ..modes import Mode

# What the end of a body does with its record: remember the delivery as ended, queue it again because the broker will
# deliver the message once more, or only remove it.
Ending = Literal["ended", "requeued", "removed"]


class TaskCall(NamedTuple):
    """One call of a task, with its lock. Times are seconds.

    ``delivery_id``: the identity of the message; a redelivered message has the same, a retry has a new one.
    ``queued_ttl``: how long a queued record lasts from now. ``done_ttl``: how long an ended delivery is remembered.
    ``ending``: what a release of the body's lease does with the record.
    """

    name: str
    keys: Keys
    task: str
    task_id: str
    delivery_id: str
    mode: Mode
    limit: int
    queued_ttl: float
    done_ttl: float
    ending: Ending = "requeued"

    @property
    def owner(self) -> dict[str, str]:
        """The fields that the owner in the record has beside host, pid and thread."""
        return {"label": self.task, "task_id": self.task_id}

    @property
    def requeue_ttl(self) -> float:
        """How long the record lasts when the message is delivered again; 0 in modes without queued records."""
        return self.queued_ttl if self.mode.at_submit else 0.0

    @property
    def done_key(self) -> bytes:
        """The key that exists when this delivery has ended or was replaced."""
        return self.keys.lock + b":done:" + self.delivery_id.encode()
