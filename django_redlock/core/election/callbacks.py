"""The calls of a leader's ``on_elected`` and ``on_lost``, in threads and in asyncio tasks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..process.caller import running_loop
from ..process.threads import Kind, start

Callback = Callable[[Any], Any]
Call = Future[None] | asyncio.Task[None]  # one call of a callback


def begin_call(what: str, callback: Callback, leader: Any) -> Call:
    """Begin to call ``callback(leader)``. ``what``: ``"on_elected"`` or ``"on_lost"``.

    On an event loop the call is a new task. Otherwise ``on_elected`` is called in a new thread, and ``on_lost`` in this
    thread, so that it is called even if no thread can be started.
    """
    if running_loop() is not None:
        return asyncio.create_task(_run_in_task(callback, leader), name=f"redlock-{what} {leader.name}")
    call: Future[None] = Future()
    call.set_running_or_notify_cancel()  # a thread can't be cancelled
    if what == "on_lost":
        _run(call, callback, leader)
    elif start(Kind.LEADER, _run, call, callback, leader) is None:
        call.set_exception(RuntimeError("no thread can be started"))
    return call


async def _run_in_task(callback: Callback, leader: Any) -> None:
    result = callback(leader)
    if inspect.isawaitable(result):
        await result


def _run(call: Future[None], callback: Callback, leader: Any) -> None:
    try:
        callback(leader)
    except BaseException as error:  # noqa: BLE001  (the leader logs it)
        call.set_exception(error)
    else:
        call.set_result(None)
