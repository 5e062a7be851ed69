"""The lock of a candidate, and the calls of its ``on_elected`` and ``on_lost`` in threads and asyncio tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from ..locks.hold import Hold
from ..locks.lock import Lock
from ..process.threads import Kind, start

Callback = Callable[[Any], Any]
Call = Future[None] | asyncio.Task[None]  # one call of a callback


class TermHold(Hold):
    """The hold of the leader."""

    @property
    def kept_until(self) -> float:
        """As in `Hold`. A lost lock stays unavailable until its lease ends: the leader's work may need this time."""
        return self.lease.valid_until if self._lost else super().kept_until


class CandidateLock(Lock):
    """The lock of a candidate. It reports no "refused" events, because another leader is the normal state."""

    hold_type = TermHold

    def _emit_refused(self, waited: float, reason: str, holder: str = "") -> None:
        if reason != "taken":
            super()._emit_refused(waited, reason, holder)


def check_callbacks(**callbacks: Any) -> None:
    """Raise ``TypeError`` for a callback that is neither ``None`` nor callable."""
    for what, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{what} must be a callable that gets the leader, not {callback!r}")


def check_plain(*callbacks: Callback | None) -> None:
    """Raise ``TypeError`` for a coroutine function, which needs an event loop."""
    for callback in callbacks:
        if inspect.iscoroutinefunction(callback):
            raise TypeError(f"{callback.__name__} is a coroutine function: use `async with leader(…)`")


class Begin(NamedTuple):
    """A request of a candidate's flow: start a call of ``callback`` with the leader. The reply is the running `Call`.

    ``what``: ``"on_elected"`` or ``"on_lost"``.
    """

    what: str
    callback: Callback


def begin(request: Begin, leader: Any) -> Future[None]:
    """Call the callback: ``on_lost`` in this thread, ``on_elected`` in a new thread. Returns the call's future."""
    call: Future[None] = Future()
    call.set_running_or_notify_cancel()  # a thread can't be cancelled

    def run() -> None:
        try:
            request.callback(leader)
        except BaseException as error:  # noqa: BLE001  (the flow logs it)
            call.set_exception(error)
        else:
            call.set_result(None)

    if request.what == "on_lost":
        run()
    elif start(Kind.LEADER, run) is None:
        call.set_exception(RuntimeError("no thread can be started"))
    return call


def begin_task(request: Begin, leader: Any) -> asyncio.Task[None]:
    """Call the callback in a new task of the running event loop."""

    async def run() -> None:
        result = request.callback(leader)
        if inspect.isawaitable(result):
            await result

    return asyncio.create_task(run(), name=f"redlock-{request.what} {leader.name}")
