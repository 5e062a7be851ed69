"""Processes that hold a lock, wait for it, hand it off or adopt it."""

import time
from typing import Any

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.primitives import base
from tests.support.processes import Channel

TTL = 6.0  # seconds


def backend_on(places: list[str]) -> RedisBackend | RedlockBackend:
    if len(places) == 1:
        return RedisBackend(places[0], node_timeout=10)
    return RedlockBackend(places, node_timeout=10, quarantine=False)


def give(channel: Channel, places: list[str], name: str) -> None:
    """Acquire the lock, hand it off when told to, and wait."""
    lock = backend_on(places).lock(name, ttl=TTL, owner="giver")
    assert lock.acquire(timeout=30)
    channel.say("held")
    channel.hear("hand off", 60)
    channel.say("handed off", text=lock.hand_off(), token=lock.token)
    channel.hear("never", 60)


def go_on(channel: Channel, places: list[str]) -> bool:
    """Adopt a lock when told to, report the renewal of its lease, and release it when told to."""
    backend = backend_on(places)
    channel.say("ready")
    lock = backend.adopt(channel.hear("adopt", 60)["text"], owner="adopter")
    channel.say("adopted")
    left = lock.remaining
    while lock.remaining <= left:
        left = lock.remaining
        lock.check()
        time.sleep(0.05)
    channel.say("renewed")
    channel.hear("release", 60)
    lock.release()
    return lock.lost


def hold(channel: Channel, places: list[str], name: str, side: str, options: dict[str, Any]) -> None:
    """Hold a fair lock, or a side of a read-write lock, until told. ``block``, an option: seconds between two tries."""
    base.MAX_BLOCK_IN_QUEUE = options.pop("block", base.MAX_BLOCK_IN_QUEUE)
    store = backend_on(places)
    lock = store.lock(name, fair=True, **options) if side == "fair" else getattr(store.rwlock(name, **options), side)
    channel.say("asks")
    assert lock.acquire(timeout=120)
    channel.say("holds")
    channel.hear("release", 120)
    lock.release()
