"""Handles with which one may hold several locks at once: the permits of a semaphore, or stripes."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...errors import LockError, PermitNotHeld
from ..context import caller
from ..flow.drivers import adrive, drive
from ..flow.requests import Flow
from ..values import Seconds
from . import state_mutex
from .forwarding import forward_members
from .lease_state import LeaseState
from .lock import Lock

if TYPE_CHECKING:
    _Members = Lock
else:
    _Members = object


class Permits(_Members):
    """A handle like `threading.BoundedSemaphore`: each ``acquire()`` takes a permit, and ``release()`` gives one back.

    Threads and tasks may share it. A ``with`` block has a permit of its own. Each permit has a lease of its own:
    ``token``, ``remaining``, ``check()``, ``extend()`` and so on are about the permit that the calling thread or task
    has taken last; if it has none, about the last one that was taken through this handle.
    """

    _kind: type[Lock] = Lock

    def __init__(self, *model: Any, **options: Any) -> None:
        self._another = partial(self._kind, *model, **options)
        self.store, _, self.name, *_ = model
        self.permits: list[tuple[int, Lock]] = []  # thread or task, and what it has taken, in that order
        self._entered: list[tuple[int, Lock]] = []  # the same of `with` blocks
        self._last: Lock | None = None  # the permit that was released last

    def acquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:
        """Take a permit; whether there was one. Arguments and errors: `Lock.acquire`."""
        permit = self._another()
        return permit.acquire(blocking, timeout) and self._add(permit)

    async def aacquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:  # noqa: ASYNC109 (as in threading)
        """`acquire` for asyncio."""
        permit = self._another()
        return await permit.aacquire(blocking, timeout) and self._add(permit)

    def release(self, n: int = 1) -> None:
        """Give ``n`` permits back: the last that this thread or task has taken, else those that others have taken.

        A permit of another's ``with`` block is not given back. Raises ``PermitNotHeld``, a ``ValueError``, when there
        are fewer, and then gives none back; ``LockLost`` and ``LockUnavailable`` as `Lock.release`.
        """
        drive(self._release_flow(n), self.store.perform)

    async def arelease(self, n: int = 1) -> None:
        """`release` for asyncio."""
        await adrive(self._release_flow(n), self.store.aperform)

    def __enter__(self) -> Self:
        permit = self._another()
        permit.__enter__()
        self._add(permit, entered=True)
        return self

    async def __aenter__(self) -> Self:
        permit = self._another()
        await permit.__aenter__()
        self._add(permit, entered=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._left_permit().__exit__(kind, error, tb)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._left_permit().__aexit__(kind, error, tb)

    def __repr__(self) -> str:
        state, count = "locked" if self.remaining else "unlocked", len(self.permits)
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{state} {kind} object name={self.name!r} at {id(self):#x}: {count} held>"

    __reduce__ = LeaseState.__reduce__

    def _add(self, permit: Lock, *, entered: bool = False) -> bool:
        with state_mutex.mutex:
            self.permits.append((caller(), permit))
            if entered:
                self._entered.append((caller(), permit))
        return True

    def own_handle(self) -> Lock:
        """The permit that the caller asks about."""
        with state_mutex.mutex:
            me = caller()
            taken = [permit for who, permit in self.permits if who == me] or [permit for _, permit in self.permits]
            return taken[-1] if taken else self._last or self._another()

    def _left_permit(self) -> Lock:
        """The permit that a block gives back, taken out of the lists.

        It is the innermost block of this thread or task; if it has entered none, the block that was entered first. What
        was released within the block, and taken again, is given back as well.
        """
        with state_mutex.mutex:
            me = caller()
            mine = [place for place, (who, _) in enumerate(self._entered) if who == me]
            _, permit = self._entered.pop(mine[-1] if mine else 0)
            if all(permit is not held for _, held in self.permits):
                inside = {id(each) for _, each in self._entered}
                taken = [each for who, each in self.permits if who == me and id(each) not in inside]
                permit = taken[-1] if taken else permit
            self._remove([permit])
            return permit

    def _release_flow(self, n: int) -> Flow[None]:
        if n < 1:
            raise ValueError("n must be one or more")
        failure: LockError | None = None
        for permit in self._chosen(n):
            try:
                yield from permit.release_flow()
            except LockError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _chosen(self, n: int) -> list[Lock]:
        """The permits to give back, taken out of the list."""
        with state_mutex.mutex:
            me, inside = caller(), {id(permit) for _, permit in self._entered}
            last_first = self.permits[::-1]
            free = [each for each in last_first if id(each[1]) not in inside]
            chosen = [permit for who, permit in free if who == me]
            chosen += [permit for who, permit in last_first if who == me and id(permit) in inside]
            chosen += [permit for who, permit in free if who != me]
            if len(chosen) < n:
                raise PermitNotHeld(self.name)
            self._remove(chosen[:n])
            return chosen[:n]

    def _remove(self, permits: list[Lock]) -> None:
        gone = {id(permit) for permit in permits}
        self.permits = [each for each in self.permits if id(each[1]) not in gone]
        self._last = permits[-1]


class Semaphore(Permits):
    """A lock that several may hold at once: made by ``backend.semaphore(name, limit=N, …)``."""


forward_members(Permits, Lock)
