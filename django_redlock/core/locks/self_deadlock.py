"""Self-deadlock: detects a thread or task that would wait for a lock that it holds itself."""

from __future__ import annotations

from typing import Any, TypeVar

from ...errors import LockDeadlock
from ..background.work import background
from ..events import logger
from ..flow.requests import AwaitEvent, Block, BlockThenEval, Flow
from ..process.caller import calling
from ..values import Claim

T = TypeVar("T")

WARN_AFTER = 1.0  # seconds of waiting for the same handle, in which another thread may release it
_WAITING_REQUESTS = {BlockThenEval, Block, AwaitEvent}


def self_deadlock_flow(flow: Flow[T], handle: Any, claim: Claim) -> Flow[T]:
    """Run ``flow``, which acquires the lock of ``handle`` for ``claim`` and may wait without limit.

    Before its first wait, raises ``LockDeadlock`` if the calling thread or task holds the lock through another handle.
    If the caller holds the lock through this handle, another thread or task may release it, so only a warning is
    logged, after a second and once for each handle.
    """
    hold, waits = None, 0
    try:
        request = next(flow)
        while True:
            if type(request) in _WAITING_REQUESTS:
                waits += 1
                if waits == 1 and (hold := _own_hold_in_the_way(handle, claim)) is not None:
                    if hold not in handle.holds:
                        raise LockDeadlock(claim.name)
                    request = request._replace(seconds=min(request.seconds, WARN_AFTER))
                elif waits == 2 and hold is not None and not handle.nesting_logged:
                    handle.nesting_logged = True
                    logger.warning(
                        "lock %r is held by this thread or task, which waits for it through the same handle until "
                        "another thread or task releases it; use rlock() to acquire it more than once, or wait with "
                        "a timeout",
                        claim.name,
                    )
            request = flow.send((yield request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


def _own_hold_in_the_way(handle: Any, claim: Claim) -> Any:
    """Return the `Hold` of this thread or task on a lock of ``claim``; ``None`` if there is none.

    A hold that is not renewed or has a ``max_hold`` is ignored, because it ends by itself. The result is also ``None``
    if ``claim`` asks for any one of several locks, because another of these locks may become free.
    """
    wanted = set(claim.all_keys)
    if not handle.primitive.one_holder or not (claim.require_all or len(wanted) == 1):
        return None
    me = calling()
    for hold in background.holds():
        if hold.acquired_by != me or hold.store is not handle.store or not hold.primitive.one_holder:
            continue
        lasts = hold.active and hold.remaining and not hold.options.ends_by_itself
        if lasts and not wanted.isdisjoint(hold.lease.claim.all_keys):
            return hold
    return None
