"""Runs the callbacks of a candidate: requests to call them, and `Work`, which is one call of ``on_elected``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ..events import logger

Callback = Callable[[Any], Any]
ON_ELECTED_FAILED = "on_elected of leader %r failed"


class CallElected(NamedTuple):
    """A request of the election: call ``on_elected`` in a new thread or task. The reply is a `Work`."""


class CallLost(NamedTuple):
    """A request of the election: call ``on_lost``, and wait until it has returned. Its exceptions are logged."""


class Work:
    """One call of ``on_elected``, in its own thread or task.

    ``done`` is true after the call. ``failed`` is true if the call has raised an exception, which was logged. The
    function ``ended`` is called after the call, in the same thread or event loop.
    """

    def __init__(self, name: str, ended: Callable[[], object]) -> None:
        self.done = False
        self.failed = False
        self._name = name
        self._ended = ended
        self._task: asyncio.Task[None] | None = None

    def run(self, callback: Callback, leader: Any) -> None:
        """Call ``callback(leader)`` in the current thread."""
        try:
            callback(leader)
        except BaseException:
            self.failed = True
            logger.exception(ON_ELECTED_FAILED, self._name)
        finally:
            self._on_end()

    def start_task(self, callback: Callback, leader: Any) -> None:
        """Call ``callback(leader)`` in a task of the running event loop."""
        self._task = asyncio.create_task(self._arun(callback, leader), name=f"redlock-elected {self._name}")
        self._task.add_done_callback(lambda _: self._on_end())  # a task that is cancelled at once runs no code

    async def _arun(self, callback: Callback, leader: Any) -> None:
        try:
            await call(callback, leader)
        except Exception:
            self.failed = True
            logger.exception(ON_ELECTED_FAILED, self._name)

    def cancel(self) -> None:
        """Cancel the task of the call, because the term has ended.

        A thread can't be cancelled. Its code must check ``leader.leading``.
        """
        if self._task is not None:
            self._task.cancel()

    def _on_end(self) -> None:
        self.done = True
        self._ended()


async def call(callback: Callback, leader: Any) -> None:
    """Call ``callback(leader)`` on the event loop, and await the result if ``callback`` is a coroutine function."""
    result = callback(leader)
    if inspect.isawaitable(result):
        await result
