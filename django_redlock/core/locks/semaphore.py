"""The semaphore, and the base of handles that hold several locks at once: permits or stripes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from ...errors import LockError, PermitNotHeld
from ..flow.drivers import adrive, drive
from ..flow.requests import Flow
from ..process.caller import caller
from ..process.mutex import state_mutex
from ..values import Seconds
from .forwarding import forward_members
from .lease_state import LeaseState
from .lock import Lock

if TYPE_CHECKING:
    _Members = Lock
else:
    _Members = object


class Permits(_Members):
    """A handle like `threading.BoundedSemaphore`: ``acquire()`` acquires one permit, ``release()`` releases one.

    Threads and tasks may share the handle. Each ``with`` block has its own permit, and each permit has its own lease.
    ``token``, ``remaining``, ``check()``, ``extend()`` and so on apply to the permit that the calling thread or task
    acquired last. If the thread or task has no permit, they apply to the last permit of this handle.
    """

    _kind: type[Lock] = Lock

    def __init__(self, *model: Any, **options: Any) -> None:
        self._new_permit = partial(self._kind, *model, **options)
        self.store, _, self.name, *_ = model
        self.permits: list[tuple[int, Lock]] = []  # the thread or task, and its permit; oldest first
        self._entered: list[tuple[int, Lock]] = []  # the permits of `with` blocks
        self._last: Lock | None = None  # the permit that was released last

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **unknown: Never) -> bool:
        """Acquire a permit. Returns whether a permit was granted. Arguments and errors are those of `Lock.acquire`."""
        permit = self._new_permit()
        with self._released_if_interrupted([permit]):
            return permit.acquire(blocking, timeout, **unknown) and self._add(permit)

    async def aacquire(self, blocking: bool = True, timeout: Seconds = -1, **unknown: Never) -> bool:  # noqa: ASYNC109
        """`acquire` for asyncio."""
        permit = self._new_permit()
        with self._released_if_interrupted([permit]):
            return await permit.aacquire(blocking, timeout, **unknown) and self._add(permit)

    def release(self, n: int = 1) -> None:
        """Release ``n`` permits: first the latest permits of this thread or task, then permits of others.

        The permit of a ``with`` block is released by its own thread or task only. Raises ``PermitNotHeld``, a
        ``ValueError``, and releases nothing if there are fewer than ``n`` permits. Raises ``ValueError`` if ``n`` is
        less than 1. ``LockLost`` and ``LockUnavailable`` are raised as by `Lock.release`.
        """
        drive(self._release_flow(n), self.store.perform)

    async def arelease(self, n: int = 1) -> None:
        """`release` for asyncio."""
        await adrive(self._release_flow(n), self.store.aperform)

    def __enter__(self) -> Self:
        permit = self._new_permit()
        with self._released_if_interrupted([permit]):
            permit.__enter__()
            self._add(permit, entered=True)
        return self

    async def __aenter__(self) -> Self:
        permit = self._new_permit()
        with self._released_if_interrupted([permit]):
            await permit.__aenter__()
            self._add(permit, entered=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        left: list[Lock] = []
        with self._released_if_interrupted(left):
            self._leave_block(left)
            left[0].__exit__(kind, error, tb)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        left: list[Lock] = []
        with self._released_if_interrupted(left):
            self._leave_block(left)
            await left[0].__aexit__(kind, error, tb)

    def __repr__(self) -> str:
        state, count = "locked" if self.remaining else "unlocked", len(self.permits)
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return f"<{state} {kind} object name={self.name!r} at {id(self):#x}: {count} held>"

    __reduce__ = LeaseState.__reduce__

    def _add(self, permit: Lock, *, entered: bool = False) -> bool:
        with state_mutex:
            inside = {id(each) for _, each in self._entered}
            # A permit without a lease is one whose `switch()` has failed.
            kept = [each for each in self.permits if each[1].current_lease() is not None or id(each[1]) in inside]
            self.permits = [*kept, (caller(), permit)]
            if entered:
                self._entered.append((caller(), permit))
        return True

    @contextmanager
    def _released_if_interrupted(self, permits: list[Lock]) -> Iterator[None]:
        """Release ``permits`` in the background if an interrupt ends the block: this handle may not list them."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, LockError):
                for permit in permits:
                    flow = permit.release_flow()  # a release that is begun and closed goes on in the background
                    with suppress(LockError):
                        next(flow, None)
                    flow.close()
                with state_mutex:
                    self._remove(permits)
                    self._entered = [each for each in self._entered if each[1] not in permits]
            raise

    def own_handle(self) -> Lock:
        """Return the permit to which ``token``, ``extend()`` and so on apply: see `Permits`.

        If this handle has no permit, returns the permit that was released last, or a new one that is not acquired.
        """
        with state_mutex:
            me = caller()
            held = [permit for by, permit in self.permits if by == me] or [permit for _, permit in self.permits]
            return held[-1] if held else self._last or self._new_permit()

    def _leave_block(self, left: list[Lock]) -> None:
        """Remove the permit of the ``with`` block that the caller leaves, and append the permit to ``left``.

        The caller leaves its innermost block. A thread or task that has entered no block leaves the oldest block of the
        handle. If the permit of the block was released already, removes the latest permit that the caller acquired by
        ``acquire()`` instead, if there is one. Without any block, removes the permit that ``release()`` would release.
        """
        with state_mutex:
            if not self._entered:
                self._remove_latest(1, left)
                return
            me = caller()
            own = [index for index, (by, _) in enumerate(self._entered) if by == me]
            _, permit = self._entered[own[-1] if own else 0]
            if id(permit) not in {id(held) for _, held in self.permits}:
                inside = {id(each) for _, each in self._entered}
                later = [each for by, each in self.permits if by == me and id(each) not in inside]
                permit = later[-1] if later else permit
            left.append(permit)
            del self._entered[own[-1] if own else 0]
            self._remove(left)

    def _release_flow(self, n: int) -> Flow[None]:
        if n < 1:
            raise ValueError("n must be one or more")
        failure: LockError | None = None
        chosen: list[Lock] = []
        with self._released_if_interrupted(chosen):
            self._remove_latest(n, chosen)
            for permit in chosen:
                try:
                    yield from permit.release_flow()
                except LockError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _remove_latest(self, n: int, removed: list[Lock]) -> None:
        """Remove ``n`` permits from the list ``permits``, in the order of `release`, and append them to ``removed``.

        The caller must release them. Raises ``PermitNotHeld`` if there are fewer permits that the caller may release.
        """
        with state_mutex:
            me, inside = caller(), {id(permit) for _, permit in self._entered}
            last_first = self.permits[::-1]
            free = [each for each in last_first if id(each[1]) not in inside]
            chosen = [permit for by, permit in free if by == me]
            chosen += [permit for by, permit in last_first if by == me and id(permit) in inside]
            chosen += [permit for by, permit in free if by != me]
            if len(chosen) < n:
                raise PermitNotHeld(self.name)
            removed += chosen[:n]
            self._remove(removed)

    def _remove(self, permits: list[Lock]) -> None:
        removed = {id(permit) for permit in permits}
        kept = [each for each in self.permits if id(each[1]) not in removed]
        if len(kept) < len(self.permits):
            self.permits, self._last = kept, permits[-1]


class Semaphore(Permits):
    """A lock with up to N holders at once. Created by ``backend.semaphore(name, limit=N, …)``."""


forward_members(Permits, Lock)
