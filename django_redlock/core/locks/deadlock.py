"""Detects a thread or task that waits for a lock that it holds itself, through this or another handle."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ...errors import LockDeadlock
from ..contract import Renewable, Store
from ..events import logger
from ..flow.requests import Block, BlockThenEval, Flow
from ..primitives.base import Primitive
from ..process.caller import calling
from ..renewal.registry import renewal
from ..values import Claim
from ..waiting.waiters import AwaitTurn, AwaitWakeUp

T = TypeVar("T")

WARN_AFTER = 1.0  # seconds of waiting for the same handle, in which another thread may release it
_WAITING_REQUESTS = {BlockThenEval, Block, AwaitTurn, AwaitWakeUp}
_ONE_HOLDER = {"mutex", "multilock", "timestamp"}  # kinds of locks that exclude every other handle


def before_waiting(flow: Flow[T], check: Callable[[], Callable[[], object] | None]) -> Flow[T]:
    """Run ``flow``, and call ``check()`` before its first wait. If the flow does not wait, ``check()`` isn't called.

    ``check`` may return a function, which is called after ``WARN_AFTER`` seconds of waiting.
    """
    try:
        request = next(flow)
        while type(request) not in _WAITING_REQUESTS:
            request = flow.send((yield request))
        warn = check()
        if warn is not None:
            request = flow.send((yield _cut(request)))
            while type(request) not in _WAITING_REQUESTS:
                request = flow.send((yield request))
            warn()
        while True:
            request = flow.send((yield request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()


def _cut(request: Any) -> Any:
    return request._replace(seconds=min(request.seconds, WARN_AFTER))


def check_nesting(
    store: Store, primitive: Primitive, claim: Claim, own: Collection[Renewable]
) -> Callable[[], object] | None:
    """Raise ``LockDeadlock`` if the calling thread or task holds a lock of ``claim`` through another handle.

    ``own``: the holds of the handle that waits. If the thread or task holds the lock through this handle, returns a
    function that logs a warning, because another thread or task may release the lock through the handle.
    """
    hold = _own_hold_in_the_way(store, primitive, claim)
    if hold is None:
        return None
    if hold not in own:
        renewal.release_later(store, primitive, claim, waited=True)
        raise LockDeadlock(claim.name)
    return lambda: logger.warning(
        "lock %r is held by this thread or task, which waits for it through the same handle until another thread or "
        "task releases it; use rlock() to acquire it more than once, or wait with a timeout",
        claim.name,
    )


def _own_hold_in_the_way(store: Store, primitive: Primitive, claim: Claim) -> Renewable | None:
    """Return the hold of a lock of ``claim`` that this thread or task has acquired; ``None`` if there is none.

    Ignores a lock that ends by itself, because it is not renewed or has a ``max_hold``.
    """
    if primitive.kind not in _ONE_HOLDER:
        return None
    me = calling()
    for _, target in list(renewal.entries.values()):
        hold = target() if isinstance(target, weakref.ref) else None
        if hold is None or hold.acquired_by != me or hold.store is not store or hold.primitive.kind not in _ONE_HOLDER:
            continue
        lasts = hold.active and hold.remaining and not hold.ends_by_itself
        if lasts and not set(hold.lease.claim.all_keys).isdisjoint(claim.all_keys):
            return hold
    return None
