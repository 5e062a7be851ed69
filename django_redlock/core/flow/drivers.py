"""The two loops that run a flow (a generator of requests): `drive` blocks, `adrive` is for asyncio.

Both run the same flows, so each algorithm is written once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ..process.caller import running_loop
from .requests import Flow

T = TypeVar("T")


def drive(flow: Flow[T], perform: Callable[[Any], Any]) -> T:
    """Run ``flow`` to its end, blocking, and return its result. ``perform(request)`` returns the reply."""
    try:
        request = next(flow)
        while True:
            request = flow.send(perform(request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()  # an interrupted flow must clean up now, not when its traceback is freed


async def adrive(flow: Flow[T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    """Run ``flow`` to its end on the running event loop, and return its result.

    ``perform`` is awaited with each request, for the reply. Raises ``RuntimeError`` if no asyncio event loop is
    running, for example under trio.
    """
    if running_loop() is None:
        raise RuntimeError("no asyncio event loop is running: these methods are for asyncio only, not for trio")
    try:
        request = next(flow)
        while True:
            request = flow.send(await perform(request))
    except StopIteration as done:
        result: T = done.value
        return result
    finally:
        flow.close()
