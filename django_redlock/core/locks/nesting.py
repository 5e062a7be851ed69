"""A thread or a task that would wait for ever, since it holds the lock itself through another handle."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from ..events import logger
from ..flow.requests import AwaitWakeUp, Block, BlockThenEval, Flow
from ..keys import Keys
from ..renewal import renewal
from ..values import Claim
from ..waiting.waiters import AwaitTurn
from .lease_state import LeaseState

T = TypeVar("T")

_WAITING_REQUESTS = {BlockThenEval, Block, AwaitTurn, AwaitWakeUp}
_ONE_HOLDER = {"mutex", "multilock", "timestamp"}  # kinds of locks that exclude every other handle


def before_waiting(flow: Flow[T], check: Callable[[], None]) -> Flow[T]:
    """``flow``; ``check()`` is called when it is about to wait for the first time, and so not if the lock is free."""
    try:
        request = next(flow)
        while type(request) not in _WAITING_REQUESTS:
            request = flow.send((yield request))
        check()
        while True:
            request = flow.send((yield request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


def holder_in_the_way(lock: LeaseState, claim: Claim, me: object) -> LeaseState | None:
    """The handle through which this thread or task holds what ``lock`` would wait for without an end.

    A lock that is not renewed, or not beyond ``max_hold``, ends by itself.
    """
    if lock.primitive.kind not in _ONE_HOLDER:
        return None
    for _, target in list(renewal.entries.values()):
        held = target() if isinstance(target, weakref.ref) else None
        if not isinstance(held, LeaseState) or held.acquired_by != me or held.store is not lock.store:
            continue
        terms, lease = held.options, held.current_lease()
        if lease is None or held.lost or not terms.auto_renew or terms.max_hold is not None:
            continue
        if held.primitive.kind in _ONE_HOLDER and _share(lease.claim.all_keys, claim.all_keys):
            return held
    return None


def warn_of_waiting(lock: LeaseState) -> None:
    """Log that a thread or task waits for a handle that it holds itself: it depends on another one's `release()`."""
    logger.warning(
        "lock %r is held by this thread or task, which now waits for it through the same handle until another one "
        "releases it; use rlock() to acquire it more than once",
        lock.name,
    )


def _share(some: tuple[Keys, ...], others: tuple[Keys, ...]) -> bool:
    return not set(some).isdisjoint(others)
