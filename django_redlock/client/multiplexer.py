"""Few connections for many tasks: those of one event loop send to a node in turn, and many wait on one connection.

Threads have a connection each while they ask or wait: a thread costs more than that.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from ..core.algorithms.single_node import run_idempotent
from ..core.flow.drivers import adrive
from ..core.flow.replies import waited
from ..core.flow.requests import Block, BlockThenEval, EvalAndWait, EvalScript, Fault
from ..core.flow.scripts import script
from .discovery import ClusterNode, Node
from .loop_deadlines import LoopDeadline
from .request import run_in_background

MAX_IN_FLIGHT = 8  # of one event loop that are under way to one node at the same time
OWN_CONNECTIONS = 4  # of its waiters that have a connection of their own; all others share one
LISTEN_SECONDS = 0.1  # seconds after which that one looks whom else to wait for
_WAKE = script("wake")

Carry = Callable[..., Awaitable[Any]]


class RequestSlots:
    """So many tasks of one event loop ask at the same time, and the others wait for their turn."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._line = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._answered = 0.0

    async def acquire(self) -> Fault | None:
        """Wait for a turn. As long as others are answered that may take a while; else a `Fault`."""
        while self._line.locked():
            try:
                async with LoopDeadline(self._timeout):
                    await self._line.acquire()
                    return None
            except TimeoutError as error:
                if asyncio.get_running_loop().time() - self._answered > self._timeout:
                    return Fault(TimeoutError(f"no answer in time: {error}"))
        await self._line.acquire()
        return None

    def release(self, answered: bool) -> None:
        """The turn is over; whether there was an answer."""
        if answered:
            self._answered = asyncio.get_running_loop().time()
        self._line.release()


class LoopConnections:
    """The tasks of one event loop that use one node."""

    def __init__(self, node: int, timeout: float, carry: Carry) -> None:
        self.node = node
        self._carry = carry
        self._turns = RequestSlots(timeout)
        self._waiting: dict[bytes, dict[asyncio.Future[Any], None]] = {}
        self._listener: asyncio.Task[None] | None = None
        self.blocked = 0

    async def send(self, request: Any, carry: Carry) -> Any:
        """Send when it is this one's turn. As long as others are answered that may take a while."""
        if (fault := await self._turns.acquire()) is not None:
            return fault
        answered = False
        try:
            reply = await carry(request)
            answered = not isinstance(reply, Fault)
            return reply
        finally:
            self._turns.release(answered)

    async def block(self, request: Any, carry: Carry) -> Any:
        """Wait on a connection of one's own."""
        self.blocked += 1
        try:
            return await carry(request)
        finally:
            self.blocked -= 1

    async def listen(self, keys: Sequence[bytes], seconds: float) -> Any:
        """Wait with others for an element of one of these lists: the key and the element, ``None``, or a `Fault`."""
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
        while self._waiting:
            keys = list(self._waiting)
            answer = await self._block(keys, LISTEN_SECONDS)
            if len(keys) > 1 and isinstance(answer, Fault) and answer.refused:  # whose key is it?
                for key in keys:
                    await self._wake([key], await self._block([key], 0.0))
            else:
                await self._wake(keys, answer)

    async def _block(self, keys: Sequence[bytes], seconds: float) -> Any:
        key, *more = keys
        return await self._carry(Block(key, seconds, self.node, more))

    async def _wake(self, keys: Sequence[bytes], answer: Any) -> None:
        """Hand an answer to the one that it is for, an error to all that wait for these lists."""
        if answer is None:
            return
        found = keys if isinstance(answer, Fault) else answer[:1]
        waiting = [each for key in found for each in self._waiting.get(key, ()) if not each.done()]
        if isinstance(answer, Fault):
            for each in waiting:
                if not each.done():  # it may wait for several
                    each.set_result(answer)
        elif waiting:
            waiting[0].set_result(answer)
        else:
            await self._push_back(answer[0])
        await asyncio.sleep(0)  # they leave, and the next round is without them

    async def _push_back(self, key: bytes) -> None:
        """Nobody is there any more for whom this wake-up was: put it back for the next, here or elsewhere."""
        await adrive(run_idempotent(EvalScript(_WAKE, (key,), (), self.node)), self._carry)


class Multiplexer:
    """The crowds of each event loop. ``carry``: what carries out one request on a connection of its own."""

    def __init__(self, nodes: Sequence[Node], timeout: float, carry: Carry) -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._carry = carry
        self._by_loop: weakref.WeakKeyDictionary[Any, dict[int, LoopConnections]] = weakref.WeakKeyDictionary()

    async def perform(self, request: Any, carry: Carry) -> Any:
        """Carry out ``request``."""
        kind = type(request)
        if kind is EvalAndWait:  # that waits for replicas: it would hold up the others
            return await carry(request)
        crowd = self._connections(request.script_call.node if kind is BlockThenEval else request.node)
        if kind is not BlockThenEval and kind is not Block:
            return await crowd.send(request, carry)
        if crowd.blocked < OWN_CONNECTIONS or isinstance(self._nodes[crowd.node], ClusterNode):
            return await crowd.block(request, carry)  # one BLPOP can't name keys of several slots
        if kind is Block:
            return await crowd.listen((request.key, *request.more_keys), request.seconds)
        block = await crowd.listen((request.wake_key, *request.more_keys), request.seconds)
        return waited(block, await crowd.send(request.script_call, carry))

    def _connections(self, node: int) -> LoopConnections:
        crowds = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        return crowds.get(node) or crowds.setdefault(node, LoopConnections(node, self._timeout, self._carry))
