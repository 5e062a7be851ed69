"""Handles with several holds at once: the semaphore, and the striped lock, which acquires any one of N mutexes."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Collection
from typing import Any

from ...errors import LockError, PermitNotHeld
from ..flow.drivers import adrive, drive
from ..flow.requests import Flow
from ..keys import Keys, stripe_name
from ..lock_info import LockInfo
from ..primitives.multi import MAX_LOCKS
from ..process.caller import calling
from ..process.mutex import state_mutex
from ..values import Claim, Lease, Refusal
from .handle import refusal_error
from .hold import End, Hold
from .lock import Lock

# Each acquire() tries the next stripe first. The random start tells hosts apart, the process id the forks of a process.
_starts = itertools.count(random.randrange(MAX_LOCKS))


class Semaphore(Lock):
    """A lock with up to N holders at once, like `threading.BoundedSemaphore`. It has the members of a `Lock`.

    Created by ``backend.semaphore(name, limit=N, …)``. Each ``acquire()`` and each ``with`` block of a thread or task
    has its own permit, with its own lease. ``token``, ``remaining``, ``check()``, ``extend()`` and so on apply to the
    permit that the calling thread or task acquired last. If the caller has no permit, they apply to the last permit
    of this handle.
    """

    several = True

    def release(self, n: int = 1) -> None:
        """Release ``n`` permits: first the latest permits of this thread or task, then permits of others.

        The permit of a ``with`` block can be released only by the thread or task of the block. Raises
        ``PermitNotHeld``, a ``ValueError``, and releases nothing if there are fewer than ``n`` permits. Raises
        ``ValueError`` if ``n`` is less than 1. Raises ``LockLost`` and ``LockUnavailable`` as `Lock.release` does,
        after trying to release all ``n`` permits.
        """
        drive(self._release_several_flow(n), self.store.perform)

    async def arelease(self, n: int = 1) -> None:
        """`release` for asyncio."""
        await adrive(self._release_several_flow(n), self.store.aperform)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}: {len(self.holds)} held>"

    def _release_several_flow(self, n: int) -> Flow[None]:
        if n < 1:
            raise ValueError("n must be one or more")
        chosen = self._releasable()[:n]
        if len(chosen) < n:
            raise PermitNotHeld(self.name)
        failure: LockError | None = None
        for hold in chosen:
            try:
                yield from self.release_flow(hold)
            except LockError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _releasable(self) -> list[Hold]:
        """Return the permits that the caller may release, in the order in which `release` chooses them."""
        me, inside, last_first = calling(), self._entered, self.holds[::-1]
        free = [hold for hold in last_first if hold not in inside]
        own = [hold for hold in free if hold.acquired_by == me]
        own += [hold for hold in last_first if hold.acquired_by == me and hold in inside]
        return own + [hold for hold in free if hold.acquired_by != me]

    def release_flow(self, hold: Hold | None = None) -> Flow[None]:
        if hold is None:
            hold = next(iter(self._releasable()), None)
            if hold is None:
                raise PermitNotHeld(self.name)
        return super().release_flow(hold)


def check_stripes(stripes: int) -> int:
    """Return ``stripes``. Raises ``TypeError`` unless it is an ``int``, ``ValueError`` unless it is from 1 to 256."""
    if isinstance(stripes, bool) or not isinstance(stripes, int):
        raise TypeError(f"stripes must be an int, not {stripes!r}")
    if not 1 <= stripes <= MAX_LOCKS:
        raise ValueError(f"stripes must be from 1 to {MAX_LOCKS}, not {stripes}")
    return stripes


class StripeHold(Hold):
    """A hold of one stripe. ``visited``: indexes of the stripes that `Striped.switch` has released before."""

    visited: frozenset[int] = frozenset()


class Striped(Semaphore):
    """A handle that acquires any free stripe of N stripes. It has the methods and properties of a `Lock`.

    Created by ``backend.striped(name, stripes=N, …)``. Each stripe is a mutex. Stripes are counted from 0. The stripe
    with index 3 of ``stock:17`` is listed, and released by force, under the name ``{stock:17}#3``. ``locked()`` returns
    whether ``acquire()`` would have to wait. Threads and tasks may share the handle: each ``acquire()``, and each
    ``with`` block, has its own stripe.
    """

    hold_type = StripeHold

    def __init__(self, *args: Any, stripes: tuple[Keys, ...] = (), indexes: tuple[int, ...] = ()) -> None:
        super().__init__(*args)
        self._stripes = stripes
        self._indexes = indexes  # indexes of the stripes that may be acquired; empty: all stripes

    @property
    def stripe(self) -> int | None:
        """The index of the stripe that is held, counted from 0; ``None`` when no stripe is held."""
        hold = self.hold
        return self._index_of(hold.lease) if hold and hold.active else None

    def _index_of(self, lease: Lease) -> int:
        return self._stripes.index(lease.claim.keys)

    def switch(self, without: Collection[int] = ()) -> bool:
        """Release this stripe, and acquire one that this handle has not held since ``acquire()``.

        Call it when the held stripe has no work left. ``without``: indexes of stripes that this call and later calls
        don't acquire. Returns ``True`` after a switch. Returns ``False``, and keeps the stripe, if there is no other
        stripe to try. Waits as long as a ``with`` block waits, then raises ``LockNotAcquired``. Raises the errors of
        ``check()``, ``release()`` and ``acquire()``. If releasing or acquiring fails, the handle holds nothing, and a
        ``with`` block releases nothing at its end.
        """
        return drive(self._switch_flow(frozenset(without)), self.store.perform)

    async def aswitch(self, without: Collection[int] = ()) -> bool:
        """`switch` for asyncio."""
        return await adrive(self._switch_flow(frozenset(without)), self.store.aperform)

    # ── flows for threads and asyncio ────────────────────────────────────────────────────────

    def _switch_flow(self, without: frozenset[int]) -> Flow[bool]:
        self.check()
        before: Any = self.required_hold()
        visited = before.visited | without | {self._index_of(before.lease)}
        others = tuple(index for index in self._indexes or range(len(self._stripes)) if index not in visited)
        if not others:
            return False
        try:
            yield from self.release_flow(before)
            outcome: Any = yield from self.acquire_flow(self._blocking_seconds(), self._claim_for(others))
        finally:
            if not before.active:
                before.end_kind = End.TRANSFERRED  # its `with` block has nothing to release
        if isinstance(outcome, Refusal):
            raise refusal_error(self.name, outcome, "has no other stripe that is free")
        outcome.visited, outcome.acquired_by = visited, before.acquired_by
        with state_mutex:
            self._entered[:] = [outcome if hold is before else hold for hold in self._entered]
        return True

    def _keys_of(self, indexes: tuple[int, ...]) -> tuple[Keys, ...]:
        return tuple(self._stripes[index] for index in indexes) if indexes else self._stripes

    def new_claim(self) -> Claim:
        return self._claim_for(self._indexes)

    def _claim_for(self, wanted: tuple[int, ...]) -> Claim:
        """Return the claim for one of the stripes ``wanted``. If ``wanted`` is empty, the claim is for any stripe."""
        stripes = self._keys_of(wanted)
        first = (next(_starts) + os.getpid()) % len(stripes)
        stripe_set = self._stripes[0].lock, len(self._stripes), *wanted
        return super().new_claim()._replace(all_keys=stripes[first:] + stripes[:first], stripe_set=stripe_set)

    def names_of(self, lease: Lease) -> tuple[str, ...]:
        return (stripe_name(self.name, self._index_of(lease)),)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """Return the stripe that this handle holds, as the store shows it; ``None`` if the store has no holder for it.

        If the handle holds no stripe, returns the last of the stripes that it may acquire, or ``None`` if one of these
        stripes is free.
        """
        hold = self.hold
        stripes = (hold.lease.claim.keys,) if hold and hold.active else self._keys_of(self._indexes)
        held = None
        for keys in stripes:
            held = yield from self.store.algorithm.describe(stripe_name(self.name, self._stripes.index(keys)), keys)
            if held is None:
                break
        return held
