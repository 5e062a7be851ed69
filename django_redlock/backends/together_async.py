"""One request to many nodes, for asyncio: a task for each of them.

A task whose reply is outstanding when the outcome is certain goes on, and what follows for its token waits for it: so a
release can't overtake the acquire that it undoes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ..core.requests import Batch, Fault, Run, Together
from .exchange import LINGER
from .nodes import Node
from .together import Party, runs_of


class AsyncParty:
    """`Party` for asyncio. They share what is known of nodes that are absent, and what these are still to be told."""

    def __init__(self, nodes: Sequence[Node], timeout: float, party: Party) -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._party = party
        self._tails: dict[tuple[bytes, int], asyncio.Task[Any]] = {}
        self._settling: dict[bytes, asyncio.Event] = {}

    async def perform(self, request: Together, perform: Callable[..., Awaitable[Any]]) -> list[Any]:
        """`Party.perform`, with ``perform`` to ask one node."""
        asks, decided, family = request
        # What is still outstanding for this family comes first; a node that hangs keeps us for its timeout at most.
        if (settled := self._settling.pop(family, None)) is not None:
            settled.set()
        before = [task for ask in asks if (task := self._tails.pop((family, ask.node), None)) and family]
        if before:
            await asyncio.wait(before)
        settled = asyncio.Event()
        now = time.monotonic()
        replies: list[Any] = [None] * len(asks)
        places: dict[asyncio.Task[Any], int] = {}
        failed = {ask.node: error for ask in asks if (error := self._party.dialer.failure(ask.node, now))}
        if failed and len(asks) - len(failed) < self._party.needed(len(asks), decided):
            failed = {}
        for place, ask in enumerate(asks):
            if ask.node in failed:
                replies[place] = Fault(failed[ask.node], where=self._nodes[ask.node].label)
                self._party.arrears.absent(family, runs_of(ask), ask.node)
                continue
            self._party.arrears.sent(family, ask.node)
            task = asyncio.create_task(_insist(partial(perform, settled=settled), ask))
            task.add_done_callback(partial(self._ended, family, ask))  # known before anybody is told of the reply
            places[task] = place
        pending = set(places)
        try:
            if pending and decided([None] * len(asks)):
                # Nobody needs the answers, but the loop may end soon: see that they are sent.
                await asyncio.wait(pending, timeout=self._timeout)
                return replies
            while pending and not decided(replies):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    replies[places[task]] = task.result()
        except BaseException:
            for task in pending:
                task.cancel()
            raise
        finally:
            for task, place in places.items():
                if not task.done():
                    self._tails[family, asks[place].node] = task
            if family and pending and decided(replies):
                self._settle_later(family, settled)
            else:
                settled.set()
        return replies

    def _settle_later(self, family: bytes, settled: asyncio.Event) -> None:
        """What is outstanding is undone by what frees the lock, and not before: it may be counted on meanwhile."""
        self._settling[family] = settled
        asyncio.get_running_loop().call_later(LINGER, self._settling.pop, family, None)

    def _ended(self, family: bytes, ask: Run | Batch, task: asyncio.Task[Any]) -> None:
        if self._tails.get((family, ask.node)) is task:
            del self._tails[family, ask.node]
        reply = None if task.cancelled() else task.result()
        if isinstance(reply, Fault):
            self._party.arrears.missed(runs_of(ask), ask.node)
            if not reply.stale:
                self._party.dialer.leave_out(ask.node, reply.error)


async def _insist(perform: Callable[[Any], Awaitable[Any]], ask: Any) -> Any:
    reply = await perform(ask)
    if isinstance(reply, Fault) and reply.stale:
        again = await perform(ask)
        return reply if again in (0, -1) else again
    return reply
