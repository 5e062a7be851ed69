"""Performs the requests that flows (`core.flow`) yield, on Redis servers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from ..core.contract import FlowRequest
from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import CallFunction, EvalScript, Fault, ListPools, SendToAll, SetIfAbsent, Sleep
from ..core.waiting.waiters import AwaitTurn
from .errors import fault_of, without_context
from .fanout.broadcast_drivers import FanOut
from .multiplexer import Multiplexer
from .nodes.protocol import Node
from .pool import ServerPool
from .request import AnyRequest, asend, send, send_all
from .request_plans import PLANS, eval_request, read_replies_of, read_set_reply, set_request

_REPLY_TYPES = int, list  # the types of nearly all replies of scripts


class Executor:
    """Performs the requests of flows (`core.flow`) on ``nodes``, blocking or for asyncio.

    ``timeout`` is the node timeout in seconds. ``greeting`` is an encoded command that is sent on each new connection
    for requests to all nodes.
    """

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self.nodes = nodes
        self.fan_out = FanOut(nodes, timeout, greeting)
        self.multiplexer = Multiplexer(nodes, self._run_plan)

    def perform(self, request: FlowRequest) -> Any:
        """Perform a request of a flow (`core.flow`), blocking, and return its result.

        The result is a `Fault` if there is no usable reply.
        """
        if isinstance(request, EvalScript):  # most requests are scripts, and nearly always need one reply only
            replies = send(eval_request(self.nodes, request))
            plain = type(replies) is list and type(replies[0]) in _REPLY_TYPES
            return replies[0] if plain else drive(read_replies_of(self.nodes, request, replies), send)
        if isinstance(request, SetIfAbsent):
            return read_set_reply(send(set_request(self.nodes, request)))
        if (plan := PLANS.get(type(request))) is not None:
            return drive(plan(self.nodes, request), self._send)
        if isinstance(request, SendToAll):
            return self.fan_out.perform(request)
        if isinstance(request, AwaitTurn):
            return request.event.wait(request.seconds)
        if isinstance(request, Sleep):
            return time.sleep(request.seconds)
        if isinstance(request, CallFunction):
            return request.function(*request.args)
        if isinstance(request, ListPools):
            return self._pools(request.node)
        raise TypeError(f"{type(request).__name__} is not for Redis")

    async def aperform(self, request: FlowRequest) -> Any:
        """`perform` for asyncio."""
        if isinstance(request, EvalScript):
            replies = await asend(eval_request(self.nodes, request))
            plain = type(replies) is list and type(replies[0]) in _REPLY_TYPES
            return replies[0] if plain else await adrive(read_replies_of(self.nodes, request, replies), self._asend)
        if isinstance(request, SetIfAbsent):
            return read_set_reply(await asend(set_request(self.nodes, request)))
        if type(request) in PLANS:
            return await self.multiplexer.perform(request)
        if isinstance(request, SendToAll):
            return await self.fan_out.aperform(request)
        if isinstance(request, AwaitTurn):
            return await request.event.wait_async(request.seconds)
        if isinstance(request, Sleep):
            return await asyncio.sleep(request.seconds)
        if isinstance(request, CallFunction):
            return await asyncio.to_thread(request.function, *request.args)
        if isinstance(request, ListPools):
            return await self._apools(request.node)
        raise TypeError(f"{type(request).__name__} is not for Redis")

    async def _run_plan(self, request: Any) -> Any:
        return await adrive(PLANS[type(request)](self.nodes, request), self._asend)

    def _send(self, request: AnyRequest | ListPools | Sleep | list[AnyRequest]) -> Any:
        """Perform a request that a plan (`request_plans`) has yielded, and return its result. Blocks the thread.

        The requests of a list are sent at the same time, and the result is the list of their results.
        """
        if isinstance(request, ListPools):
            return self._pools(request.node)
        if isinstance(request, Sleep):
            return time.sleep(request.seconds)
        return send_all(request) if isinstance(request, list) else send(request)

    async def _asend(self, request: AnyRequest | ListPools | Sleep | list[AnyRequest]) -> Any:
        if isinstance(request, ListPools):
            return await self._apools(request.node)
        if isinstance(request, Sleep):
            return await asyncio.sleep(request.seconds)
        return await (asyncio.gather(*map(asend, request)) if isinstance(request, list) else asend(request))

    def _pools(self, node: int) -> list[ServerPool] | Fault:
        handled = sys.exception()
        try:
            return self.nodes[node].pools()
        except (RedisError, OSError) as error:
            return fault_of(self.nodes[node], without_context(error, handled))

    async def _apools(self, node: int) -> list[ServerPool] | Fault:
        handled = sys.exception()
        try:
            return await self.nodes[node].apools()
        except (RedisError, OSError) as error:
            return fault_of(self.nodes[node], without_context(error, handled))
