"""`Lock`: the lock handle for applications, with methods and ``with`` blocks for threads and for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Never, Self

from ...errors import LockError, LockLost, LockNotHeld
from ..events import logger
from ..flow.drivers import adrive, drive
from ..options import wait_seconds
from ..owner import Owner
from ..process.caller import check_may_block, running_loop
from ..values import Refusal, Seconds
from .hand_off import hand_off_flow
from .handle import FOREVER, Handle
from .hold import Hold


class Lock(Handle):
    """A lock with the interface of ``threading.Lock``. For asyncio, each method has a variant with the prefix ``a``.

    Created by ``backend.lock(name, …)``. Threads or tasks may share a handle, which then behaves like one lock. The
    lease is renewed until it is released, ``max_hold`` has passed, the handle is garbage-collected or the process ends.
    In a child of ``fork()`` the handle holds nothing.
    """

    @property
    def token(self) -> str | None:
        """The token, the secret of this acquisition; ``None`` when this handle holds nothing."""
        hold = self.hold
        return hold.token if hold else None

    @property
    def owner(self) -> Owner | None:
        """The owner that describes this holder: host, pid, thread or task, time of ``acquire()``.

        ``None`` when this handle holds nothing.
        """
        hold = self.hold
        return hold.owner if hold else None

    @property
    def fencing_token(self) -> int | None:
        """The fencing token, a number that grows with every grant of this name.

        ``None`` if this handle holds nothing, and without the option ``fencing=True``. The number is the server's clock
        in µs. The store keeps the largest number beside the lock, so that the next number is larger even after the
        clock was set back. Store the number with each write, and refuse writes with a smaller number (Kleppmann, "How
        to do distributed locking").
        """
        hold = self.hold
        return hold.fencing_token if hold else None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, by the monotonic clock; 0 when this handle holds nothing or the lease is lost.

        The duration of the acquisition and the clock drift (1 % of the ttl) are subtracted.
        """
        hold = self.hold
        return hold.remaining if hold else 0.0

    @property
    def lost(self) -> bool:
        """Whether the last lease of this handle ended before it was released.

        Also true in a ``with`` block whose lease has ended, even if another thread or task has since acquired the lock
        through this handle.
        """
        hold = self.hold
        return hold is not None and hold.lost

    def check(self) -> None:
        """Raise ``LockLost`` if the lease is lost, ``LockNotHeld`` if this handle holds nothing. Sends no request."""
        hold = self.hold
        if hold is None:
            raise LockNotHeld(self.name)
        hold.check()

    def __repr__(self) -> str:
        state = "locked" if self.token and not self.lost else "unlocked"
        return f"<{state} {type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"

    def acquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:
        """Acquire the lock, waiting ``timeout`` seconds at most (-1: without limit). Returns whether it was acquired.

        ``blocking=False``: don't wait. Raises ``ValueError`` and ``OverflowError`` as ``threading.Lock.acquire`` does,
        ``LockUnavailable`` when the store can't be used, ``RuntimeError`` in a coroutine, and ``LockDeadlock`` instead
        of waiting without limit for a lock that the same thread or task holds through another handle.
        """
        return isinstance(self._acquire(wait_seconds(blocking, timeout)), Hold)

    async def aacquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:  # noqa: ASYNC109
        """`acquire` for asyncio."""
        return isinstance(await self._aacquire(wait_seconds(blocking, timeout)), Hold)

    def release(self) -> None:
        """Release the lock. Any thread or task may release it.

        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease has ended or the lock has
        another holder, and ``LockUnavailable`` when the store can't be used. After ``LockUnavailable`` the lock is
        released in the background as soon as possible, or ends with its lease.
        """
        drive(self.release_flow(), self.store.perform)

    async def arelease(self) -> None:
        """`release` for asyncio."""
        await adrive(self.release_flow(), self.store.aperform)

    def extend(self, ttl: Seconds | None = None) -> float:
        """Extend the lease to ``ttl`` seconds from now (``None``: the ttl of the lock). Returns `remaining`.

        Waits for a renewal that is in flight. If an earlier extension to a shorter ttl got no reply, that shorter
        ttl limits the result, because the server may run the two extensions in any order.

        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease is lost, ``LockUnavailable``
        when the store can't be used, ``ValueError`` for a ttl below 0.003 seconds or above ``max_ttl``, and
        ``RuntimeError`` in a coroutine if it has to wait for a renewal.
        """
        return drive(self.extend_flow(ttl), self.store.perform)

    async def aextend(self, ttl: Seconds | None = None) -> float:
        """`extend` for asyncio."""
        return await adrive(self.extend_flow(ttl), self.store.aperform)

    def hand_off(self, ttl: Seconds | None = None) -> str:
        """Stop holding the lease, and return a text with which another process can take the lease over.

        ``backend.adopt(text)`` and ``django_redlock.adopt(text)`` continue the lease. The lease is first extended to
        ``ttl`` seconds (``None``: the ttl of the lock), and is not renewed until it is adopted. The text is valid once,
        until the lease ends. It is a secret: any process that has the text can release the lock.

        Raises ``LockNotSupported`` for a lock with several holders, and on a backend that can't hand locks off. Also
        raises the errors of `extend`. After an error this handle still holds the lock, unless `lost` is true: if the
        lease was extended but the store did not confirm the hand-off, the lock is lost, and released in the background.
        """
        return drive(hand_off_flow(self, ttl), self.store.perform)

    async def ahand_off(self, ttl: Seconds | None = None) -> str:
        """`hand_off` for asyncio."""
        return await adrive(hand_off_flow(self, ttl), self.store.aperform)

    def locked(self) -> bool:
        """Ask the store whether the lock is held by any holder. Raises ``LockUnavailable``."""
        return drive(self.describe_flow(), self.store.perform) is not None

    async def alocked(self) -> bool:
        """`locked` for asyncio."""
        return await adrive(self.describe_flow(), self.store.aperform) is not None

    def owned(self) -> bool:
        """Ask the store whether this handle holds the lock. Raises ``LockUnavailable``."""
        return self.is_ours(drive(self.describe_flow(), self.store.perform))

    async def aowned(self) -> bool:
        """`owned` for asyncio."""
        return self.is_ours(await adrive(self.describe_flow(), self.store.aperform))

    def attempt(self, timeout: Seconds = 0) -> Attempt:
        """Return a context manager for a block that may be skipped: ``with lock.attempt() as acquired:``.

        ``acquired`` is ``True`` if the lock was acquired within ``timeout`` seconds (-1: without limit); the end of the
        block releases it. ``acquired`` is ``False`` if another holder has the lock. Errors are those of ``with lock``,
        except ``LockNotAcquired``. For asyncio: ``async with lock.attempt() as acquired:``.
        """
        return Attempt(self, wait_seconds(True, timeout))

    def __enter__(self) -> Self:
        if self.adopted is None or not self.enter_adopted():
            self.enter_block(self._acquire(self._blocking_seconds()))
        return self

    async def __aenter__(self) -> Self:
        if self.adopted is None or not self.enter_adopted():
            self.enter_block(await self._aacquire(self._blocking_seconds()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            drive(self.leave_flow(), self.store.perform)
        except LockError as failure:
            self._exit_block(failure, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await adrive(self.leave_flow(), self.store.aperform)
        except LockError as failure:
            self._exit_block(failure, error)

    def _acquire(self, wait: float) -> Hold | Refusal:
        if running_loop() is not None:
            check_may_block(f"lock {self.name!r}: acquire()", "`await lock.aacquire()` or `async with lock`")
        return drive(self.acquire_flow(wait), self.store.perform)

    async def _aacquire(self, wait: float) -> Hold | Refusal:
        return await adrive(self.acquire_flow(wait), self.store.aperform)

    def _blocking_seconds(self) -> float:
        timeout = self.options.blocking_timeout
        return 0.0 if not self.options.blocking else FOREVER if timeout is None else timeout

    def _exit_block(self, failure: LockError, error: BaseException | None) -> None:
        """Raise or log ``failure``, the error of the release at the end of a ``with`` block.

        The option ``on_lost`` decides for a lost lease, and for a lock that was released within the block. The failure
        is only logged if the body raised ``error``, so that ``error`` is not hidden. ``LockUnavailable`` is always only
        logged, because the body ran under a valid lease.
        """
        lost = isinstance(failure, LockLost)
        if error is None and self.options.raises_loss and (lost or isinstance(failure, LockNotHeld)):
            raise failure
        if not lost:  # the loss itself is logged: `Hold.report_loss`
            logger.warning("%s", failure)


class Attempt:
    """The result of `Lock.attempt`. ``with`` always enters its block, and returns whether the lock was acquired."""

    def __init__(self, lock: Lock, wait: float) -> None:
        self._lock = lock
        self._wait = wait
        self._acquired = False

    def __enter__(self) -> bool:
        return self._begin(self._lock._acquire(self._wait))

    async def __aenter__(self) -> bool:
        return self._begin(await self._lock._aacquire(self._wait))

    def _begin(self, outcome: Hold | Refusal) -> bool:
        self._acquired = isinstance(outcome, Hold)
        if self._acquired:
            self._lock.enter_block(outcome)
        return self._acquired

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._acquired:
            self._lock.__exit__(kind, error, tb)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._acquired:
            await self._lock.__aexit__(kind, error, tb)

    def __bool__(self) -> Never:
        raise TypeError("attempt() is for `with lock.attempt() as acquired:`; to ask without a block, use acquire()")
