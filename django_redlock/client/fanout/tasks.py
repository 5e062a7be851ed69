"""One request to many nodes, for asyncio: the event loop watches the connections that threads use as well."""

from __future__ import annotations

import asyncio
import select
import weakref
from typing import Any

from ...core.flow.drivers import adrive
from ...core.flow.requests import Fault, SendToAll
from ..multiplexer import RequestSlots
from .broadcast import Ready, script_calls_of
from .threads import FanOut


class LoopPoll:
    """`select.poll` for the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.poll()
        self._waiting: asyncio.Future[None] | None = None

    def register(self, number: int, events: int) -> None:
        self._poll.register(number, events)
        self._loop.add_reader(number, self._wake)

    def unregister(self, number: int) -> None:
        self._loop.remove_reader(number)
        self._poll.unregister(number)

    async def poll(self, seconds: float) -> Ready:
        """What can be read within ``seconds``. A loop that stood still finds what has come meanwhile."""
        if seconds > 0:
            self._waiting = self._loop.create_future()
            timer = self._loop.call_later(seconds, self._wake)
            try:
                await self._waiting
            finally:
                timer.cancel()
        return self._poll.poll(0)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class AsyncFanOut:
    """`FanOut` for asyncio: so many tasks of a loop ask at the same time, and the others wait for their turn."""

    def __init__(self, fan_out: FanOut) -> None:
        self._fan_out = fan_out
        self._turns: weakref.WeakKeyDictionary[Any, RequestSlots] = weakref.WeakKeyDictionary()

    async def perform(self, request: SendToAll) -> list[Any]:
        """`FanOut.perform`."""
        turns = self._turns.setdefault(asyncio.get_running_loop(), RequestSlots(self._fan_out.timeout))
        if (fault := await turns.acquire()) is not None:
            for ask in request.requests:
                self._fan_out.missed_releases.not_sent(request.acquisition_id, script_calls_of(ask), ask.node)
            return [fault] * len(request.requests)
        answered = False
        try:
            poll = LoopPoll()
            replies = await adrive(self._fan_out.broadcast(request, poll).steps(), poll.poll)
            answered = any(reply is not None and type(reply) is not Fault for reply in replies)
            return replies
        finally:
            turns.release(answered)
