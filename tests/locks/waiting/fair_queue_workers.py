"""The processes of `test_fair_queue`."""

from typing import Any

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.primitives import base
from tests.support.processes import Channel

PATIENCE = 120


def backend(places: list[str], **options: Any) -> RedisBackend | RedlockBackend:
    """Return a backend on one server, or on a majority of several."""
    if len(places) == 1:
        return RedisBackend(places[0], node_timeout=10, **options)
    return RedlockBackend(places, node_timeout=10, **options)


def lock_of(places: list[str], name: str, side: str, **options: Any) -> Any:
    store = backend(places)
    return (
        store.lock(name, fair=True, fencing=True, **options)
        if side == "fair"
        else getattr(store.rwlock(name, **options), side)
    )


def hold(channel: Channel, places: list[str], name: str, side: str, options: dict[str, Any]) -> int:
    """Acquire the lock, report it, and hold it until told. Returns the fencing token. ``block`` among the options:
    seconds between two tries, for which a waiter that stands still is not passed over.
    """
    base.MAX_BLOCK_IN_QUEUE = options.pop("block", base.MAX_BLOCK_IN_QUEUE)
    lock = lock_of(places, name, side, **options)
    channel.say("asks")
    assert lock.acquire(timeout=PATIENCE)
    token: int = lock.fencing_token
    channel.say("holds", token=token)
    channel.hear("release", PATIENCE)
    lock.release()
    return token
