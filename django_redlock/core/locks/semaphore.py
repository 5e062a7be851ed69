"""The semaphore: a handle that can hold several permits at once."""

from __future__ import annotations

from ...errors import LockError, PermitNotHeld
from ..flow.drivers import adrive, drive
from ..flow.requests import Flow
from ..process.caller import calling
from .hold import Hold
from .lock import Lock


class Semaphore(Lock):
    """A lock with up to N holders at once, like `threading.BoundedSemaphore`. It has the members of a `Lock`.

    Created by ``backend.semaphore(name, limit=N, …)``. Each ``acquire()`` and each ``with`` block of a thread or task
    has its own permit, with its own lease. ``token``, ``remaining``, ``check()``, ``extend()`` and so on apply to the
    permit that the calling thread or task acquired last. If it has no permit, they apply to the last permit of this
    handle.
    """

    several = True

    def release(self, n: int = 1) -> None:
        """Release ``n`` permits: first the latest permits of this thread or task, then permits of others.

        Only the own thread or task can release the permit of a ``with`` block. Raises ``PermitNotHeld``, a
        ``ValueError``, and releases nothing if there are fewer than ``n`` permits. Raises ``ValueError`` if ``n`` is
        less than 1. Raises ``LockLost`` and ``LockUnavailable`` as `Lock.release` does, after trying to release all
        ``n`` permits.
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
        me, inside, last_first = calling(), self._blocks, self.holds[::-1]
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
