"""`Leader`: a candidate of an election as a context, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, Self

from ..events import logger
from ..flow.drivers import adrive, drive
from ..options import wait_seconds
from ..process.caller import check_may_block
from ..process.threads import Kind, start
from ..values import Seconds
from .election import Election
from .work import CallElected, CallLost, Work, call

ON_LOST_FAILED = "on_lost of leader %r failed"


class Leader(Election):
    """A candidate of the election ``name``. At most one candidate of a name leads at a time.

    Created by ``backend.leader(name, …)`` or ``leader(name, …)``. Within ``with`` or ``async with`` the candidate
    stands for election in the background, leads, and stands again after a loss. At the end of the block a leader calls
    ``on_lost`` and then releases the lock, so that another candidate can lead.
    """

    _thread: threading.Thread | None = None
    _task: asyncio.Task[None] | None = None

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Wait until this candidate leads, for ``timeout`` seconds at most (``None``: until the block ends).

        Returns whether this candidate leads. Raises ``RuntimeError`` outside of the ``with`` block, and in a coroutine
        if it has to wait.
        """
        return drive(self.wait_flow(self._seconds(timeout)), self._store.perform)

    async def await_(self, timeout: Seconds | None = None) -> bool:  # noqa: ASYNC109
        """`wait` for asyncio."""
        return await adrive(self.wait_flow(self._seconds(timeout)), self._store.aperform)

    def _seconds(self, timeout: Seconds | None) -> float:
        if not self._standing:
            raise RuntimeError(f"leader {self.name!r} does not stand for election: wait within its `with` block")
        return wait_seconds(True, -1 if timeout is None else timeout)

    def __repr__(self) -> str:
        state = "leading" if self.leading else "standing" if self._standing else "idle"
        return f"<{state} {type(self).__name__} name={self.name!r}>"

    # ── threads ──────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        check_may_block(f"leader {self.name!r}", "`async with leader(…)`")
        for callback in (self._on_elected, self._on_lost):
            if inspect.iscoroutinefunction(callback):
                raise TypeError(f"{callback.__name__} is a coroutine function: use `async with leader(…)`")
        self._begin()
        try:
            self._thread = start(Kind.LEADER, self._run, postpones_forks=False)
        except BaseException:
            self._standing = False
            raise
        if self._thread is None:
            self._standing = False
            raise RuntimeError(f"leader {self.name!r} can't stand for election: no thread can be started")
        return self

    def __exit__(self, *error: object) -> None:
        thread, self._thread = self._thread, None
        if self._standing and thread is not None:  # not in a child of fork()
            self._end()
            thread.join()

    def _begin(self) -> None:
        if self._standing:
            raise RuntimeError(f"leader {self.name!r} stands already: each block needs a leader of its own")
        self._lost, self._standing = False, True

    def _run(self) -> None:
        while self._unfinished:
            for flow in (self.round_flow, self.end_term_flow):
                try:
                    drive(flow(), self._perform)
                except BaseException:  # a defect, perhaps of a custom backend: the candidate stands again
                    logger.exception("leader %r failed", self.name)
                    self._pause_due = True

    def _perform(self, request: Any) -> Any:
        if isinstance(request, CallElected):
            work = Work(self.name, self._wake_all)
            if start(Kind.LEADER, work.run, self._on_elected, self, postpones_forks=False) is None:
                raise RuntimeError("no thread can be started for on_elected")
            return work
        if isinstance(request, CallLost):
            try:
                self._on_lost(self)  # type: ignore[misc]  # asked only if there is one
            except BaseException:
                logger.exception(ON_LOST_FAILED, self.name)
            return None
        return self._store.perform(request)

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        self._begin()
        self._task = asyncio.create_task(self._arun(), name=f"redlock-leader {self.name}")
        return self

    async def __aexit__(self, *error: object) -> None:
        task, self._task = self._task, None
        if self._standing and task is not None:
            self._end()
            await asyncio.wait({task})  # unlike `await task`, a cancellation here does not cancel the task

    async def _arun(self) -> None:
        while self._unfinished:
            for flow in (self.round_flow, self.end_term_flow):
                try:
                    await adrive(flow(), self._aperform)
                except asyncio.CancelledError:  # the event loop ends
                    self._end()
                except Exception:
                    logger.exception("leader %r failed", self.name)
                    self._pause_due = True

    async def _aperform(self, request: Any) -> Any:
        if isinstance(request, CallElected):
            work = Work(self.name, self._wake_all)
            work.start_task(self._on_elected, self)  # type: ignore[arg-type]  # asked only if there is one
            return work
        if isinstance(request, CallLost):
            try:
                await call(self._on_lost, self)  # type: ignore[arg-type]
            except Exception:
                logger.exception(ON_LOST_FAILED, self.name)
            return None
        return await self._store.aperform(request)
