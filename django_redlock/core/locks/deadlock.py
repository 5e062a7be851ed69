"""Detects a thread or task that waits for a lock that it holds itself, through this or another handle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ...errors import LockDeadlock
from ..events import logger
from ..flow.requests import AwaitTurn, Block, BlockThenEval, Flow
from ..process.caller import calling
from ..renewal.registry import Renewable
from ..values import Claim

T = TypeVar("T")

WARN_AFTER = 1.0  # seconds of waiting for the same handle, in which another thread may release it
_WAITING_REQUESTS = {BlockThenEval, Block, AwaitTurn}
_ONE_HOLDER = {"mutex", "multilock", "timestamp"}  # kinds of locks that exclude every other handle


def check_nesting_flow(
    flow: Flow[T], handle: Any, claim: Claim, all_holds: Callable[[], Iterable[Renewable]]
) -> Flow[T]:
    """Run ``flow``, which acquires the lock of ``handle`` for ``claim`` and may wait without limit.

    Before its first wait, raises ``LockDeadlock`` if the calling thread or task holds the lock through another handle.
    If it holds the lock through this handle, another thread or task may release it: a warning is logged after a second,
    once for each handle. ``all_holds`` returns the holds of this process.
    """
    try:
        request = next(flow)
        while type(request) not in _WAITING_REQUESTS:
            request = flow.send((yield request))
        hold = _own_hold_in_the_way(handle, claim, all_holds)
        if hold is not None and hold not in handle.holds:
            raise LockDeadlock(claim.name)
        if hold is not None and not handle.nesting_logged:
            request = flow.send((yield request._replace(seconds=min(request.seconds, WARN_AFTER))))
            while type(request) not in _WAITING_REQUESTS:
                request = flow.send((yield request))
            handle.nesting_logged = True
            logger.warning(
                "lock %r is held by this thread or task, which waits for it through the same handle until another "
                "thread or task releases it; use rlock() to acquire it more than once, or wait with a timeout",
                claim.name,
            )
        while True:
            request = flow.send((yield request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


def _own_hold_in_the_way(handle: Any, claim: Claim, all_holds: Callable[[], Iterable[Renewable]]) -> Renewable | None:
    """Return the hold of a lock of ``claim`` that this thread or task has acquired; ``None`` if there is none.

    Ignores a lock that ends by itself, because it is not renewed or has a ``max_hold``.
    """
    if handle.primitive.kind not in _ONE_HOLDER:
        return None
    me = calling()
    for hold in all_holds():
        if hold.acquired_by != me or hold.store is not handle.store or hold.primitive.kind not in _ONE_HOLDER:
            continue
        lasts = hold.active and hold.remaining and not hold.options.ends_by_itself
        if lasts and not set(hold.lease.claim.all_keys).isdisjoint(claim.all_keys):
            return hold
    return None
