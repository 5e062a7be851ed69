"""The drivers of the flows for a task's call, `run` and `arun`.

Such a flow yields requests to the lock store, and once `CALL`: the moment at which the framework's own code runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..core.flow.requests import Flow

# Yielded by a flow where the framework's code runs. The reply is the value of this code, and its error is thrown.
CALL: Any = object()


def run(flow: Flow[Any], perform: Callable[[Any], Any], call: Callable[[], Any]) -> Any:
    """Run ``flow``, blocking, and return its result. ``perform`` performs its requests, ``call`` is run at `CALL`."""
    error: BaseException | None = None
    reply: Any = None
    try:
        while True:
            request = flow.send(reply) if error is None else flow.throw(error)
            error = reply = None
            if request is not CALL:
                reply = perform(request)
                continue
            try:
                reply = call()
            except BaseException as raised:  # noqa: BLE001  (the flow raises it)
                error = raised
    except StopIteration as done:
        return done.value
    finally:
        error = None  # its traceback refers to this frame
        flow.close()


async def arun(flow: Flow[Any], perform: Callable[[Any], Awaitable[Any]], call: Callable[[], Awaitable[Any]]) -> Any:
    """Run ``flow`` on the running event loop, and return its result, as `run` does."""
    error: BaseException | None = None
    reply: Any = None
    try:
        while True:
            request = flow.send(reply) if error is None else flow.throw(error)
            error = reply = None
            if request is not CALL:
                reply = await perform(request)
                continue
            try:
                reply = await call()
            except BaseException as raised:  # noqa: BLE001  (the flow raises it)
                error = raised
    except StopIteration as done:
        return done.value
    finally:
        error = None
        flow.close()
