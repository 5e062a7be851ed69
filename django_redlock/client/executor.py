"""Performs the requests of flows (`core.flow`) on Redis servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import AwaitEvent, CallFunction, EvalScript, FlowRequest, SendToAll, SetIfAbsent, Sleep
from .commands import PLANS, REPLY_TYPES, eval_request, read_reply, read_set_reply, set_request
from .connect import AwaitFuture
from .fanout.broadcast_drivers import FanOut
from .nodes.node import Node
from .round_trip import ServerRequest, asend, send


class Executor:
    """Performs the requests of flows (`core.flow`) on ``nodes``, blocking or for asyncio.

    ``timeout``: the node timeout in seconds. ``greeting``: an encoded command, sent first on each connection for
    requests to all nodes.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self.nodes = nodes
        self.fan_out = FanOut(nodes, timeout, greeting)

    def perform(self, request: FlowRequest) -> Any:
        """Perform a request of a flow (`core.flow`), blocking, and return its result.

        The result is a `Fault` if there is no usable reply.
        """
        if isinstance(request, EvalScript):  # most requests are scripts, and nearly always need one reply only
            replies = send(eval_request(self.nodes, request))
            plain = type(replies) is list and type(replies[0]) in REPLY_TYPES
            return replies[0] if plain else drive(read_reply(self.nodes, request, replies), send)
        if isinstance(request, SetIfAbsent):
            return read_set_reply(send(set_request(self.nodes, request)))
        if (plan := PLANS.get(type(request))) is not None:
            return drive(plan(self.nodes, request), _perform_step)
        return self.fan_out.perform(request) if isinstance(request, SendToAll) else _perform_step(request)

    async def aperform(self, request: FlowRequest) -> Any:
        """`perform` for asyncio."""
        if isinstance(request, EvalScript):
            replies = await asend(eval_request(self.nodes, request))
            plain = type(replies) is list and type(replies[0]) in REPLY_TYPES
            return replies[0] if plain else await adrive(read_reply(self.nodes, request, replies), asend)
        if isinstance(request, SetIfAbsent):
            return read_set_reply(await asend(set_request(self.nodes, request)))
        if (plan := PLANS.get(type(request))) is not None:
            return await adrive(plan(self.nodes, request), _aperform_step)
        return await (self.fan_out.aperform(request) if isinstance(request, SendToAll) else _aperform_step(request))


def _perform_step(request: Any) -> Any:
    """Perform a request of a plan, or one that needs no plan, blocking."""
    return _STEPS[type(request)][0](request)


async def _aperform_step(request: Any) -> Any:
    """`_perform_step` for asyncio."""
    return await _STEPS[type(request)][1](request)


# How each request of a plan, or without a plan, is performed: blocking, and for asyncio.
_STEPS: Mapping[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    ServerRequest: (send, asend),
    AwaitFuture: (AwaitFuture.perform, AwaitFuture.aperform),
    AwaitEvent: (lambda each: each.event.wait(each.seconds), lambda each: each.event.wait_async(each.seconds)),
    Sleep: (lambda each: time.sleep(each.seconds), lambda each: asyncio.sleep(each.seconds)),
    CallFunction: (
        lambda each: each.function(*each.args),
        lambda each: asyncio.to_thread(each.function, *each.args),
    ),
}
