"""One call of a task and the data in its record."""

from __future__ import annotations

from json.encoder import encode_basestring_ascii as encode
from typing import Literal, NamedTuple

from ..core.keys import Keys
from ..core.owner import clean, describe_owner
from .ended_deliveries import EndedMark, ended_mark
from .modes import Mode

# The first character of a provisional task id. A record has one until a backend of ``django.tasks`` has given the call
# its id. No id of a task backend begins with it.
UNNAMED = "?"

# The effect of a body's end on its record. "ended": remember the delivery as ended. "requeued": queue the call again,
# because the broker will deliver the message again. "removed": only remove the record.
Ending = Literal["ended", "requeued", "removed"]


def task_keys(keys: Keys) -> tuple[bytes, ...]:
    """Return the keys that the scripts for records get, see ``core/lua/task_record.lua``."""
    lock = keys.lock
    return (*keys.of_mutex, lock + b":put_off", lock + b":put_off:order", lock + b":replaced")


class TaskCall(NamedTuple):
    """One call of a task, with its lock. Times are seconds.

    ``name`` and ``keys``: the name and the Redis keys of the lock. ``delivery_id``: the identity of the message. A
    redelivered message keeps it, a retry gets a new one. ``queued_ttl``: time to live of a queued record from now.
    ``done_ttl``: time for which the store remembers that this delivery has ended. ``ending``: the effect on the record
    when the body's lease is released. The value in a new `TaskCall` is for a start that got no reply: the lease may
    have been granted, and is released. ``cluster``: the records are in a Redis Cluster.
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
    cluster: bool = False

    def owner(self, ttl: float = 0.0) -> bytes:
        """Describe the running thread or asyncio task as JSON, with the call's task and id. ``ttl``: seconds, or 0."""
        own = f',"label":{encode(clean(self.task))},"task_id":{encode(clean(self.task_id))}}}'
        return describe_owner(None, ttl)[:-1] + own.encode()

    @property
    def requeue_ttl(self) -> float:
        """Seconds for which a call that is queued again keeps its record, until its message is delivered again.

        0 in modes without queued records.
        """
        return self.queued_ttl if self.mode.at_submit else 0.0

    @property
    def ended(self) -> EndedMark:
        """The key of the set that lists this delivery once it has ended, and the delivery's number in the set."""
        return ended_mark(self.keys.lock, self.delivery_id, self.cluster)
