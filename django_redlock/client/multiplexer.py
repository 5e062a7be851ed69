"""Shares a few connections among the asyncio tasks of an event loop that wait for locks.

Threads share no connections. Each thread has its own connection while it sends or waits, because a thread costs more
than a connection.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from ..core.algorithms.retries import RETRY_SECONDS, run_idempotent
from ..core.flow.drivers import adrive
from ..core.flow.replies import waited
from ..core.flow.requests import AfterWait, Block, BlockThenEval, EvalScript, Fault
from ..core.flow.scripts import script
from .nodes.cluster import ClusterNode
from .nodes.node import Node

OWN_CONNECTIONS = 4  # waiters of one event loop and node that get their own connection; further waiters share one
LISTEN_SECONDS = 0.1  # seconds of one BLPOP on the shared connection; the next BLPOP includes the lists of new waiters
_WAKE = script("wake")

Perform = Callable[[Any], Awaitable[Any]]


class LoopConnections:
    """Performs the blocking requests of one event loop to one node, on a few connections.

    ``node`` is the index of the node. ``perform`` performs one request on a connection of its own.
    """

    def __init__(self, node: int, perform: Perform) -> None:
        self.node = node
        self.blocked = 0  # waiters that have their own connection
        self._perform = perform
        self._waiting: dict[bytes, dict[asyncio.Future[Any], None]] = {}  # list -> futures, in the order of arrival
        self._listener: asyncio.Task[None] | None = None

    async def block(self, request: Any) -> Any:
        """Perform a blocking ``request`` on a separate connection."""
        self.blocked += 1
        try:
            return await self._perform(request)
        finally:
            self.blocked -= 1

    async def listen(self, keys: Sequence[bytes], seconds: float) -> Any:
        """Wait on the shared connection, up to ``seconds``, for an element of one of the lists at ``keys``.

        Returns both the key of the list and the element; ``None`` if none came in time, or a `Fault` if BLPOP failed.
        """
        woken = asyncio.get_running_loop().create_future()
        for key in keys:
            self._waiting.setdefault(key, {})[woken] = None
        if self._listener is None or self._listener.done():
            self._listener = run_in_background(self._listen())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await woken
            return woken.result() if woken.done() and not woken.cancelled() else None
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled() and not isinstance(woken.result(), Fault):
                run_in_background(self._push_back(woken.result()[0]))
            raise
        finally:
            for key in keys:
                self._waiting[key].pop(woken)
                if not self._waiting[key]:
                    del self._waiting[key]

    async def _listen(self) -> None:
        try:
            while self._waiting:
                keys = list(self._waiting)
                reply = await self._blpop(keys, LISTEN_SECONDS)
                if len(keys) > 1 and isinstance(reply, Fault) and reply.refused:  # find the list that caused the error
                    for key in keys:
                        await self._wake([key], await self._blpop([key], 0.0))
                else:
                    await self._wake(keys, reply)
        finally:
            self._listener = None  # a task that has ended would keep its loop alive

    async def _blpop(self, keys: Sequence[bytes], seconds: float) -> Any:
        key, *more = keys
        return await self._perform(Block(key, seconds, self.node, more))

    async def _wake(self, keys: Sequence[bytes], reply: Any) -> None:
        """Pass ``reply``, the result of BLPOP on ``keys``, to the waiters.

        An element goes to the first waiter for its list, or back into the list if there is no waiter. A `Fault` goes to
        all waiters for ``keys``. ``None`` wakes no waiter.
        """
        if reply is None:
            return
        concerned = keys if isinstance(reply, Fault) else reply[:1]
        waiting = [woken for key in concerned for woken in self._waiting.get(key, ()) if not woken.done()]
        if isinstance(reply, Fault):
            for woken in waiting:
                if not woken.done():  # a waiter for several lists is in ``waiting`` several times
                    woken.set_result(reply)
        elif waiting:
            waiting[0].set_result(reply)
        else:
            await self._push_back(reply[0])
        await asyncio.sleep(0)  # lets the woken waiters leave before the next BLPOP

    async def _push_back(self, key: bytes) -> None:
        """Push a wake-up back to the list at ``key``, because its waiter has left. Another waiter then receives it."""
        await adrive(run_idempotent(EvalScript(_WAKE, (key,), (), self.node)), self._perform)


class Multiplexer:
    """Performs the requests of asyncio tasks. Tasks that wait share connections where possible.

    Has `LoopConnections` for each event loop and node. ``perform(request)`` performs one request, on a connection of
    its own if the request blocks.
    """

    def __init__(self, nodes: Sequence[Node], perform: Perform) -> None:
        self._nodes = nodes
        self._perform = perform
        self._by_loop: weakref.WeakKeyDictionary[Any, dict[int, LoopConnections]] = weakref.WeakKeyDictionary()

    async def perform(self, request: Any) -> Any:
        """Perform ``request``, and return its result.

        The first `OWN_CONNECTIONS` requests of an event loop that block on a node at the same time have a connection
        each. Further requests that block on the node share one connection. On a Redis Cluster no connection is shared.
        """
        kind = type(request)
        if kind is not BlockThenEval and kind is not Block:
            return await self._perform(request)
        connections = self._connections(request.script_call.node if kind is BlockThenEval else request.node)
        if connections.blocked < OWN_CONNECTIONS or isinstance(self._nodes[connections.node], ClusterNode):
            return await connections.block(request)  # on a Cluster one BLPOP can't name lists of several slots
        if kind is Block:
            return await connections.listen((request.key, *request.more_keys), request.seconds)
        start = time.monotonic()
        block = await connections.listen((request.wake_key, *request.more_keys), request.seconds)
        if type(block) is Fault and not block.refused:  # no connection: the acquire would be repeated without a pause
            await asyncio.sleep(min(request.seconds, RETRY_SECONDS[0]))
        elapsed = time.monotonic() - start
        return AfterWait(waited(block, await self._perform(request.script_call)), elapsed)

    def _connections(self, node: int) -> LoopConnections:
        by_node = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        return by_node.get(node) or by_node.setdefault(node, LoopConnections(node, self._perform))


def run_in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start ``work`` as an asyncio task, keep a reference to the task until it ends, and return the task."""
    task = asyncio.create_task(work)
    background_tasks.add(task)  # an event loop keeps no strong reference to its tasks
    task.add_done_callback(background_tasks.discard)
    return task


background_tasks: set[asyncio.Task[None]] = set()
