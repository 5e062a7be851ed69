"""The lock handle for users, with methods for threads and for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Never, Self

from ...errors import LockError, LockLost, LockNotAcquired, LockNotHeld
from ..events import logger
from ..flow.drivers import adrive, drive
from ..options import ACQUIRE_OPTIONS, unknown_options, wait_seconds
from ..owner import Owner
from ..process.caller import check_may_block
from ..values import Lease, Refusal, Seconds
from .lock_flows import FOREVER, LockFlows


class Lock(LockFlows):
    """A lock with the interface of ``threading.Lock``. For asyncio, each method has a twin with the prefix ``a``.

    Created by ``backend.lock(name, …)``. Threads or tasks may share a handle, which then behaves like one lock. The
    lease is renewed until it is released, ``max_hold`` has passed, the handle is garbage-collected or the process ends.
    In a child of ``fork()`` the handle holds nothing.
    """

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **unknown: Never) -> bool:
        """Acquire the lock, waiting ``timeout`` seconds at most (-1: without limit). Returns whether it was acquired.

        ``blocking=False``: don't wait. Raises ``ValueError`` and ``OverflowError`` as ``threading.Lock.acquire`` does,
        ``LockUnavailable`` when the store does not serve, ``RuntimeError`` in a coroutine, and ``LockDeadlock`` instead
        of waiting without limit for a lock that the same thread or task holds through another handle.
        """
        if unknown:
            raise unknown_options("acquire", unknown, ACQUIRE_OPTIONS)
        return isinstance(self._acquire(wait_seconds(blocking, timeout)), Lease)

    async def aacquire(self, blocking: bool = True, timeout: Seconds = -1, **unknown: Never) -> bool:  # noqa: ASYNC109
        """`acquire` for asyncio."""
        if unknown:
            raise unknown_options("aacquire", unknown, ACQUIRE_OPTIONS)
        return isinstance(await self._aacquire(wait_seconds(blocking, timeout)), Lease)

    def release(self) -> None:
        """Release the lock. Any thread or task may release it.

        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease has ended or the lock has
        another holder, and ``LockUnavailable`` when the store does not serve. After ``LockUnavailable`` the lock is
        released in the background as soon as the store serves, or ends with its lease.
        """
        drive(self.release_flow(), self.store.perform)

    async def arelease(self) -> None:
        """`release` for asyncio."""
        await adrive(self.release_flow(), self.store.aperform)

    def extend(self, ttl: Seconds | None = None) -> float:
        """Extend the lease to ``ttl`` seconds from now (``None``: the ttl of the lock). Returns `remaining`.

        Waits for a renewal that is in flight. If an earlier extension to a shorter ttl got no reply, the result is
        limited to that ttl, because the server may run both extensions in any order.

        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease is lost, ``LockUnavailable``
        when the store does not serve, ``ValueError`` for a ttl below 0.003 seconds or above ``max_ttl``, and
        ``RuntimeError`` in a coroutine if it has to wait for a renewal.
        """
        return drive(self.extend_flow(ttl), self.store.perform)

    async def aextend(self, ttl: Seconds | None = None) -> float:
        """`extend` for asyncio."""
        return await adrive(self.extend_flow(ttl), self.store.aperform)

    def hand_off(self, ttl: Seconds | None = None) -> str:
        """Stop holding the lease, and return a text with which another process can go on with it.

        ``backend.adopt(text)`` and ``django_redlock.adopt(text)`` continue the lease. The lease is first extended to
        ``ttl`` seconds (``None``: the ttl of the lock), and is not renewed until it is adopted. The text is valid once,
        until the lease ends. Keep it secret, because a process that has it can release the lock.

        Raises ``LockNotSupported`` for a lock with several holders, and on a backend that can't hand locks off. Also
        raises the errors of `extend`. After an error this handle still holds the lock, unless `lost` is true: if the
        lease was extended but the store did not confirm the hand-off, the lock is lost, and released in the background.
        """
        return drive(self.hand_off_flow(ttl), self.store.perform)

    async def ahand_off(self, ttl: Seconds | None = None) -> str:
        """`hand_off` for asyncio."""
        return await adrive(self.hand_off_flow(ttl), self.store.aperform)

    def locked(self) -> bool:
        """Ask the store whether the lock is held by any holder. Raises ``LockUnavailable``."""
        return drive(self.describe_flow(), self.store.perform) is not None

    async def alocked(self) -> bool:
        """`locked` for asyncio."""
        return await adrive(self.describe_flow(), self.store.aperform) is not None

    def owned(self) -> bool:
        """Ask the store whether this handle holds the lock. Raises ``LockUnavailable``."""
        return self._is_ours(drive(self.describe_flow(), self.store.perform))

    async def aowned(self) -> bool:
        """`owned` for asyncio."""
        return self._is_ours(await adrive(self.describe_flow(), self.store.aperform))

    def __enter__(self) -> Self:
        self._enter_block(self._acquire(self._blocking_seconds()))
        return self

    async def __aenter__(self) -> Self:
        self._enter_block(await self._aacquire(self._blocking_seconds()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            drive(self._leave_block_flow(), self.store.perform)
        except LockError as failure:
            self._exit_block(failure, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await adrive(self._leave_block_flow(), self.store.aperform)
        except LockError as failure:
            self._exit_block(failure, error)

    def _acquire(self, wait: float) -> Lease | Refusal:
        check_may_block(f"lock {self.name!r}: acquire()", "`await lock.aacquire()` or `async with lock`")
        return drive(self.acquire_flow(wait), self.store.perform)

    async def _aacquire(self, wait: float) -> Lease | Refusal:
        return await adrive(self.acquire_flow(wait), self.store.aperform)

    def _blocking_seconds(self) -> float:
        timeout = self.options.blocking_timeout
        return 0.0 if not self.options.blocking else FOREVER if timeout is None else timeout

    def _enter_block(self, outcome: Lease | Refusal) -> None:
        if isinstance(outcome, Lease):
            self._blocks.enter(outcome.claim.token)
            return
        owner = Owner.parse(outcome.holder)
        holder = f" by {owner}" if outcome.holder else ""
        retry_after = None if outcome.remaining == FOREVER else outcome.remaining
        what = "was done in this period" if owner.extra.get("state") == "done" else "is held"
        raise LockNotAcquired(self.name, f"{what}{holder}", retry_after, outcome.holder)

    def _exit_block(self, failure: LockError, error: BaseException | None) -> None:
        """Raise or log ``failure``, the error of the release at the end of a ``with`` block.

        Only logs the failure if the body raised ``error``, so that ``error`` is not hidden. ``LockUnavailable`` is only
        logged, too, because the body ran under a valid lease.
        """
        lost = isinstance(failure, LockLost)
        raised = isinstance(failure, LockNotHeld) or (lost and self.options.on_lost == "raise")
        if error is None and raised:
            raise failure
        if not (lost and self._is_loss_reported()):
            logger.warning("%s", failure)
