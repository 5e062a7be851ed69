"""Detects a thread or task that waits for a lock that it holds through another handle: a deadlock."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from ...errors import LockDeadlock
from ..events import logger
from ..flow.requests import Block, BlockThenEval, Flow
from ..process.caller import calling
from ..renewal.registry import renewal
from ..values import Claim
from ..waiting.waiters import AwaitTurn, AwaitWakeUp
from .lease_state import LeaseState

T = TypeVar("T")

_WAITING_REQUESTS = {BlockThenEval, Block, AwaitTurn, AwaitWakeUp}
_ONE_HOLDER = {"mutex", "multilock", "timestamp"}  # kinds of locks that exclude every other handle
_warned: weakref.WeakSet[LeaseState] = weakref.WeakSet()  # handles for which the warning was logged


def before_waiting(flow: Flow[T], check: Callable[[], None]) -> Flow[T]:
    """Run ``flow``, and call ``check()`` before its first wait. If the flow does not wait, ``check()`` isn't called."""
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


def check_nesting(lock: LeaseState, claim: Claim) -> None:
    """Raise ``LockDeadlock`` if the calling thread or task holds a lock of ``claim`` through another handle.

    ``lock``: the handle that waits. If the thread or task holds the lock through this handle, only logs a warning, once
    for each handle, because another thread or task may release the lock through the handle.
    """
    holder = _own_handle_in_the_way(lock, claim)
    if holder is lock:
        if lock not in _warned:
            _warned.add(lock)
            logger.warning(
                "lock %r is held by this thread or task, which now waits for it through the same handle until another "
                "thread or task releases it; use rlock() to acquire it more than once",
                lock.name,
            )
    elif holder is not None:
        renewal.release_later(lock.store, lock.primitive, claim, waited=True)
        raise LockDeadlock(lock.name)


def _own_handle_in_the_way(lock: LeaseState, claim: Claim) -> LeaseState | None:
    """Return the handle through which this thread or task holds a lock of ``claim``; ``None`` if there is none.

    Ignores a lock that ends by itself, because it is not renewed or has a ``max_hold``.
    """
    if lock.primitive.kind not in _ONE_HOLDER:
        return None
    me = calling()
    for _, target in list(renewal.entries.values()):
        handle = target() if isinstance(target, weakref.ref) else None
        if not isinstance(handle, LeaseState) or handle.acquired_by != me or handle.store is not lock.store:
            continue
        options, lease = handle.options, handle.current_lease()
        if lease is None or handle.lost or not options.auto_renew or options.max_hold is not None:
            continue
        if handle.primitive.kind in _ONE_HOLDER and not set(lease.claim.all_keys).isdisjoint(claim.all_keys):
            return handle
    return None
