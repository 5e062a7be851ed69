"""The callbacks of a candidate: how ``on_elected`` and ``on_lost`` are called in threads and in asyncio tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from ..process.threads import Kind, start

Callback = Callable[[Any], Any]
Call = Future[None] | asyncio.Task[None]  # one call of a callback


class Begin(NamedTuple):
    """A request of a candidate's flow: call ``callback`` with the leader. The reply is the `Call`.

    ``what``: ``"on_elected"`` or ``"on_lost"``.
    """

    what: str
    callback: Callback


def begin(request: Begin, leader: Any) -> Future[None]:
    """Call ``on_lost`` in this thread, and ``on_elected`` in a new thread."""
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
    elif start(Kind.LEADER, run, postpones_forks=False) is None:
        call.set_exception(RuntimeError("no thread can be started"))
    return call


def begin_task(request: Begin, leader: Any) -> asyncio.Task[None]:
    """Call the callback in a new task of the running event loop."""

    async def run() -> None:
        result = request.callback(leader)
        if inspect.isawaitable(result):
            await result

    return asyncio.create_task(run(), name=f"redlock-{request.what} {leader.name}")
