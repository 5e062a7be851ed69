"""A call of a task: its mode, the names and times in its record, and the sets of ended deliveries."""

from __future__ import annotations

import os
import time
from json.encoder import encode_basestring_ascii as encode
from typing import Literal, NamedTuple

from ..core.keys import Keys
from ..core.owner import clean, describe_owner

# The first character of a provisional task id. A record has one until a backend of ``django.tasks`` has given the call
# its id. No id of a task backend begins with it.
UNNAMED = "?"

# The effect of a body's end on its record. "ended": remember the delivery as ended. "requeued": queue the call again,
# because the broker will deliver the message again. "removed": only remove the record.
Ending = Literal["ended", "requeued", "removed"]

ModeName = Literal["until_executed", "until_executing", "while_executing", "until_and_while_executing", "until_expired"]


class Mode(NamedTuple):
    """A mode of ``single_instance_task``: the states ("queued", "running") in which one call refuses another.

    A running body has a lease in every mode, so that a redelivered message does not run at the same time.
    """

    at_submit: str  # states in which a call is refused at submit; "": never
    at_start: str  # the same for the start of the body
    until_expiry: bool = False  # the call counts as queued until its ttl has passed, even after its body has ended


MODES: dict[str, Mode] = {
    "until_executed": Mode("queued running", "queued running"),
    "until_executing": Mode("queued", "queued"),
    "while_executing": Mode("", "running"),
    "until_and_while_executing": Mode("queued", "running"),
    "until_expired": Mode("queued", "queued", until_expiry=True),
}


class TaskCall(NamedTuple):
    """One call of a task, with its lock. Times are seconds."""

    name: str  # of the lock
    keys: Keys
    task: str
    task_id: str
    delivery_id: str  # identity of the message; a redelivered message keeps it, a retry gets a new one
    mode: Mode
    limit: int
    queued_ttl: float  # time to live of a queued record from now
    done_ttl: float  # time for which the store remembers that this delivery has ended
    cluster: bool = False  # the records are in a Redis Cluster

    def owner(self, ttl: float = 0.0) -> bytes:
        """Describe the running thread or asyncio task as JSON, with the call's task and id. ``ttl``: seconds, or 0."""
        own = f',"label":{encode(clean(self.task))},"task_id":{encode(clean(self.task_id))}}}'
        return describe_owner(None, ttl)[:-1] + own.encode()

    @property
    def ended(self) -> tuple[bytes, bytes]:
        """The key of the set that lists this delivery once it has ended, and the delivery's number in the set."""
        return ended_mark(self.keys.lock, self.delivery_id, self.cluster)


# ── ended deliveries ─────────────────────────────────────────────────────────────────────────────

# Each set is for the deliveries that were sent within about two minutes, spread over 512 sets. It lists each delivery
# as a 64-bit number, and expires as a whole. Redis keeps a set of up to 512 numbers as an array of 8 bytes each
# (``set-max-intset-entries``): up to 2,048 deliveries a second, a set stays an array. From 25 a second on, a delivery
# needs less than 40 bytes with its share of key and set. On a Cluster, the set must be in the slot of the lock, and it
# lists the deliveries of an hour. The probability that a new delivery is mistaken for an ended one is the size of its
# set divided by 2**64.
_SECONDS, _SETS = 128, 512
_CLUSTER_SECONDS = 3600
_SIGN = 1 << 63


def new_delivery_id() -> str:
    """Return a delivery id in hex: 4 bytes with the time in seconds and 8 random bytes. `ended_mark` splits it."""
    return f"{int(time.time()):08x}{os.urandom(8).hex()}"


def ended_mark(lock_key: bytes, delivery_id: str, cluster: bool) -> tuple[bytes, bytes]:
    """Return the key of the set that lists the delivery ``delivery_id`` once it has ended, and its number in the set.

    ``delivery_id``: hex digits. If they are not from `new_delivery_id`, they contain no time, and the delivery has a
    set of its own. ``cluster``: the store is a Redis Cluster, so the set must be in the slot of ``lock_key``.
    """
    sent, number = divmod(int(delivery_id, 16), 1 << 64)
    if cluster:
        key = b"%b:ended:%x" % (lock_key, sent // _CLUSTER_SECONDS)
    else:
        key = b"%b:ended:%x.%x" % (lock_key.partition(b":{")[0], sent // _SECONDS, number % _SETS)
    return key, b"%d" % (number - _SIGN)
