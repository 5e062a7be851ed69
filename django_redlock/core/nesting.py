"""A thread or a task that would wait for ever, since it holds the lock itself through another handle."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from .events import logger
from .keys import Keys
from .lease import Claim
from .renewal import renewal
from .requests import Await, Flow, Signal, WakeUp
from .tickets import Turn

if TYPE_CHECKING:
    from .holding import Holding

T = TypeVar("T")

_WAITS = {Await, Signal, Turn, WakeUp}
_ONE_HOLDER = {"mutex", "multilock", "timestamp"}  # kinds of locks that exclude every other handle


def before_waiting(flow: Flow[T], check: Callable[[], None]) -> Flow[T]:
    """``flow``; ``check()`` is called when it is about to wait for the first time, and so not if the lock is free."""
    try:
        request = next(flow)
        while type(request) not in _WAITS:
            request = flow.send((yield request))
        check()
        while True:
            request = flow.send((yield request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


def holder_in_the_way(lock: Holding, claim: Claim, me: object) -> Holding | None:
    """The handle through which this thread or task holds what ``lock`` would wait for without an end.

    A lock that is not renewed, or not beyond ``max_hold``, ends by itself.
    """
    if lock._primitive.kind not in _ONE_HOLDER:
        return None
    for _, target in list(renewal._live.values()):
        held = target() if isinstance(target, weakref.ref) else None
        if held is None or held._taker != me or held._store is not lock._store:
            continue
        terms, lease = held._terms, held._current()
        if lease is None or held.lost or not terms.auto_renew or terms.max_hold is not None:
            continue
        if held._primitive.kind in _ONE_HOLDER and _share(lease.claim.places, claim.places):
            return held
    return None


def warn_of_waiting(lock: Holding) -> None:
    """Log that a thread or task waits for a handle that it holds itself: it depends on another one's `release()`."""
    logger.warning(
        "lock %r is held by this thread or task, which now waits for it through the same handle until another one "
        "releases it; use rlock() to acquire it more than once",
        lock.name,
    )


def _share(some: tuple[Keys, ...], others: tuple[Keys, ...]) -> bool:
    return not set(some).isdisjoint(others)
