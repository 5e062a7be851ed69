"""Names the Redis sets that list ended deliveries of tasks, so that no task runs again when its message comes again.

Each set is for the deliveries that were sent within about two minutes, or on a Cluster within an hour. It lists each
ended delivery as a 64-bit number, and expires as a whole. Redis keeps a set of up to 512 numbers as an array of 8 bytes
each (``set-max-intset-entries``). The probability that a new delivery is mistaken for an ended one is the size of its
set divided by 2**64.
"""

from __future__ import annotations

import os
import time
from hashlib import sha1
from typing import NamedTuple

# The deliveries of 128 seconds are spread over 512 sets. Up to 2,048 deliveries a second, a set stays an array. From 25
# a second on, a delivery needs less than 40 bytes: its number, and its share of the key and of the head of its set. On
# a Cluster, the set must be in the slot of the lock, and it lists the deliveries of an hour.
_SECONDS, _SETS = 128, 512
_CLUSTER_SECONDS = 3600
_DIGITS = 24  # length of an id that `new_delivery_id` makes
_SIGN = 1 << 63


class EndedMark(NamedTuple):
    """Where an ended delivery is listed: the key of the set, and the delivery's number in the set."""

    key: bytes
    number: bytes


def new_delivery_id() -> str:
    """Return a delivery id in hex: 4 bytes with the time in seconds and 8 random bytes. `ended_mark` splits it."""
    return f"{int(time.time()):08x}{os.urandom(8).hex()}"


def ended_mark(lock_key: bytes, delivery_id: str, cluster: bool) -> EndedMark:
    """Return the set that lists the delivery ``delivery_id`` once it has ended, and its number in the set.

    ``cluster``: the store is a Redis Cluster, so the set must be in the slot of ``lock_key``. An id that
    `new_delivery_id` did not make contains no time, so it has a set of its own.
    """
    try:
        sent, number = divmod(int(delivery_id, 16), 1 << 64)
    except ValueError:
        sent = 0
    if len(delivery_id) != _DIGITS or not sent:
        digest = sha1(delivery_id.encode(), usedforsecurity=False).digest()
        return EndedMark(lock_key + b":ended:" + delivery_id.encode(), b"%d" % (int.from_bytes(digest[:8]) - _SIGN))
    if cluster:
        key = b"%b:ended:%x" % (lock_key, sent // _CLUSTER_SECONDS)
    else:
        key = b"%b:ended:%x.%x" % (lock_key.partition(b":{")[0], sent // _SECONDS, number % _SETS)
    return EndedMark(key, b"%d" % (number - _SIGN))
