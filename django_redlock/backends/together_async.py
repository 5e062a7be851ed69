"""One request to many nodes, for asyncio: the event loop watches the connections that threads use as well."""

from __future__ import annotations

import asyncio
import select
import weakref
from typing import Any

from ..core.drivers import adrive
from ..core.requests import Fault, Together
from .broadcast import Ready, runs_of
from .sharing import Turns
from .together import Party


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


class AsyncParty:
    """`Party` for asyncio: so many tasks of a loop ask at the same time, and the others wait for their turn."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self._turns: weakref.WeakKeyDictionary[Any, Turns] = weakref.WeakKeyDictionary()

    async def perform(self, request: Together) -> list[Any]:
        """`Party.perform`."""
        turns = self._turns.setdefault(asyncio.get_running_loop(), Turns(self._party.timeout))
        if (fault := await turns.take()) is not None:
            for ask in request.asks:
                self._party.arrears.absent(request.family, runs_of(ask), ask.node)
            return [fault] * len(request.asks)
        answered = False
        try:
            poll = LoopPoll()
            replies = await adrive(self._party.broadcast(request, poll).steps(), poll.poll)
            answered = any(reply is not None and type(reply) is not Fault for reply in replies)
            return replies
        finally:
            turns.give(answered)
