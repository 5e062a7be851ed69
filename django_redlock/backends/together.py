"""One request to many nodes: all are written before any is read, and what comes late is read before the next use.

A connection on which a reply is outstanding when the outcome is certain stays with the token that it was used for: what
follows for that token goes the same way, so that a release can't overtake the acquire that it undoes.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from ..core import lease as _lease
from ..core.requests import Batch, Fault, Run, Together
from .exchange import fault
from .lines import _POLL, Line
from .nodes import Node

LEFT_OUT = 1.0  # seconds after which a node that hung or refused is probed


class Party:
    """The nodes of a quorum and the connections on which they still owe a reply."""

    def __init__(self, nodes: Sequence[Node], timeout: float) -> None:
        self._nodes = nodes
        self._timeout = timeout
        self._mutex = threading.Lock()
        self._out: dict[int, float] = {}  # node -> when to probe it, infinite while a probe is under way
        self._begin()

    def _begin(self) -> None:
        self._owing: dict[tuple[bytes, int], Line] = {}
        self._tails: dict[tuple[bytes, int], asyncio.Task[Any]] = {}
        self._generation = _lease.generation

    # ── blocking ─────────────────────────────────────────────────────────────────────────────

    def perform(self, request: Together) -> list[Any]:
        """Ask all, and wait until the outcome is certain or the time is up."""
        asks, decided, token = request
        if self._generation != _lease.generation:
            self._begin()  # a fork's child: the connections are the parent's
        now = time.monotonic()
        self._collect(now)
        replies: list[Any] = [None] * len(asks)
        open_: dict[int, tuple[int, Line]] = {}
        poll = select.poll()
        skipped = self._left_out(now)
        try:
            for place, ask in enumerate(asks):
                if ask.node in skipped:
                    replies[place] = Fault(skipped[ask.node], where=self._nodes[ask.node].label)
                    continue
                sent = self._send(ask, token, now)
                if isinstance(sent, Fault):
                    replies[place] = sent
                else:
                    open_[sent.fileno()] = place, sent
                    poll.register(sent.fileno(), _POLL)
            deadline = now + self._timeout
            while open_ and not decided(replies):
                ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
                for number, _ in ready:
                    poll.unregister(number)
                    place, line = open_.pop(number)
                    again = self._receive(asks[place], line, replies, place)
                    if again is not None:
                        open_[again.fileno()] = place, again
                        poll.register(again.fileno(), _POLL)
                if not ready:
                    break
            if decided(replies):
                self._put_off(open_, asks, token)
                open_ = {}
            return replies
        finally:
            for place, line in open_.values():
                replies[place] = line.lost(TimeoutError(f"no answer within {self._timeout:g} s"))
                self._leave_out(asks[place].node)

    def _send(self, ask: Run | Batch, token: bytes, now: float) -> Line | Fault:
        node = self._nodes[ask.node]
        runs = _runs(ask)
        with self._mutex:
            line = self._owing.pop((token, ask.node), None)
        for fresh in (False, True):
            try:
                if line is None:
                    line = Line(node, node.find(runs[0].keys[0]), now)
                line.send(runs, now)
            except (RedisError, OSError) as error:
                failure = line.lost(error) if line else fault(node, error)
                if failure.stale and not fresh:
                    line = None
                    continue
                self._leave_out(ask.node)
                return failure
            return line
        raise AssertionError  # not reached: the second round returns

    def _receive(self, ask: Run | Batch, line: Line, replies: list[Any], place: int) -> Line | None:
        """Read the answer into ``replies``; or the new line on which the question was asked again."""
        try:
            answers = line.receive()
        except (RedisError, OSError) as error:
            failure = line.lost(error)
            again = self._send(ask, b"", time.monotonic()) if failure.stale else failure
            if isinstance(again, Line):
                again.reused = False
                again.repeated = failure
                return again
            replies[place] = again
            self._leave_out(ask.node)
            return None
        line.give()
        if line.repeated:  # it may have been carried out before: then "nobody has it" says nothing
            answers = [line.repeated if answer in (0, -1) else answer for answer in answers]
        replies[place] = answers if isinstance(ask, Batch) else answers[0]
        return None

    def _put_off(self, open_: dict[int, tuple[int, Line]], asks: Sequence[Run | Batch], token: bytes) -> None:
        with self._mutex:
            for place, line in open_.values():
                self._owing[token or id(line).to_bytes(8, "big"), asks[place].node] = line

    def _collect(self, now: float) -> None:
        """Read the replies that came late; close what still owes one after the time that a node has."""
        if not self._owing:
            return
        with self._mutex:
            owing, self._owing = self._owing, {}
        keep = {}
        for key, line in owing.items():
            late = now - line.since > self._timeout
            try:
                if line.answered():
                    line.receive()
                    line.give()
                elif late:
                    line.drop()
                    self._leave_out(key[1])
                else:
                    keep[key] = line
            except (RedisError, OSError) as error:
                line.lost(error)
        with self._mutex:
            self._owing.update(keep)

    # ── nodes that hang ──────────────────────────────────────────────────────────────────────

    def _left_out(self, now: float) -> dict[int, Exception]:
        """The nodes not to ask now. Nobody is left out when the others are no majority."""
        if not self._out:
            return {}
        for node, when in tuple(self._out.items()):
            if when <= now:
                self._out[node] = float("inf")
                threading.Thread(target=self._probe, args=(node,), name="redlock-probe", daemon=True).start()
        if len(self._nodes) - len(self._out) <= len(self._nodes) // 2:
            return {}
        return {node: TimeoutError("left out: it did not answer lately") for node in tuple(self._out)}

    def _leave_out(self, node: int) -> None:
        self._out[node] = time.monotonic() + LEFT_OUT

    def _probe(self, node: int) -> None:
        try:
            route = self._nodes[node].find(b"")
            connection, _ = route.take()
            try:
                connection.send_command("PING", check_health=False)
                connection.read_response(disconnect_on_error=False)
            except BaseException:
                route.drop(connection)
                raise
            route.give(connection)
            self._out.pop(node, None)
        except (RedisError, OSError):
            self._leave_out(node)

    # ── asyncio ──────────────────────────────────────────────────────────────────────────────

    async def aperform(self, request: Together, perform: Callable[[Any], Awaitable[Any]]) -> list[Any]:
        """`perform` for asyncio, with ``perform`` to ask one node."""
        asks, decided, token = request
        skipped = self._left_out(time.monotonic())
        replies: list[Any] = [None] * len(asks)
        places: dict[asyncio.Task[Any], int] = {}
        for place, ask in enumerate(asks):
            if ask.node in skipped:
                replies[place] = Fault(skipped[ask.node], where=self._nodes[ask.node].label)
                continue
            before = self._tails.pop((token, ask.node), None) if token else None
            places[asyncio.create_task(_after(before, perform, ask))] = place
        pending = set(places)
        try:
            while pending and not decided(replies):
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    place = places[task]
                    replies[place] = task.result()
                    if isinstance(replies[place], Fault) and not replies[place].stale:
                        self._leave_out(asks[place].node)
        except BaseException:
            for task in pending:
                task.cancel()
            raise
        for task in pending:
            key = token, asks[places[task]].node
            self._tails[key] = task
            task.add_done_callback(partial(self._forget, key))
        return replies

    def _forget(self, key: tuple[bytes, int], task: asyncio.Task[Any]) -> None:
        if self._tails.get(key) is task:
            del self._tails[key]
        if not task.cancelled() and isinstance(task.result(), Fault):
            self._leave_out(key[1])


async def _after(before: asyncio.Task[Any] | None, perform: Callable[[Any], Awaitable[Any]], ask: Any) -> Any:
    if before is not None:
        await asyncio.wait([before])
    reply = await perform(ask)
    if isinstance(reply, Fault) and reply.stale:
        again = await perform(ask)
        return reply if again in (0, -1) else again
    return reply


def _runs(ask: Run | Batch) -> Sequence[Run]:
    return (ask,) if isinstance(ask, Run) else ask.runs
