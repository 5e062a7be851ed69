"""Does what a flow asks of Redis.

What to send and how to read the answer is written once, as flows over `Exchange`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, RedisError

from ..core.drivers import adrive, drive
from ..core.replies import Nonsense, waited
from ..core.requests import Await, Batch, Call, Command, Confirmed, Fault, Flow, Run, Signal, Sleep, Together
from ..core.scripts import script
from ..core.tickets import Turn
from .exchange import Exchange, aexchange, exchange, exchanges, fault, judged
from .nodes import ClusterNode, Node, Redirection
from .routes import Route
from .sharing import Sharing
from .together import Party
from .together_async import AsyncParty
from .wire import packed, spelled_out, words

REDIRECTS = 5
_ASKING = script("asking")
_OURS = int, list  # nearly all that scripts answer


class Routes(NamedTuple):
    """Ask for every server of a node; answered by a list of routes or a `Fault`."""

    node: int = 0


class RedisIO:
    """Carries requests to nodes, blocking or on the running event loop."""

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self.nodes = nodes
        self.party = Party(nodes, timeout, greeting)
        self._async_party = AsyncParty(self.party)
        self.sharing = Sharing(nodes, timeout, self._carry)
        self._plans: dict[type, Callable[[Any], Flow[Any]]] = {
            Run: self._run,
            Await: self._await,
            Batch: self._batch,
            Command: self._command,
            Signal: self._signal,
            Confirmed: self._confirmed,
        }

    def perform(self, request: Any) -> Any:
        """Carry out ``request``, blocking; a `Fault` where no answer came."""
        kind = type(request)
        if kind is Run:  # nearly always, and nearly always the first answer is the last
            replies = exchange(self._asking(request))
            good = type(replies) is list and type(replies[0]) in _OURS
            return replies[0] if good else drive(self._answered(request, replies), exchange)
        if (plan := self._plans.get(kind)) is not None:
            return drive(plan(request), self._exchange)
        if kind is Together:
            return self.party.perform(request)
        if kind is Turn:
            return request.ticket.wait(request.seconds)
        if kind is Sleep:
            return time.sleep(request.seconds)
        if kind is Call:
            return request.function(*request.args)
        return self._routes(request.node)

    async def aperform(self, request: Any) -> Any:
        """`perform` for asyncio."""
        kind = type(request)
        if kind is Sleep:
            return await asyncio.sleep(request.seconds)
        if kind is Call:
            return await asyncio.to_thread(request.function, *request.args)
        if kind is Turn:
            return await request.ticket.await_(request.seconds)
        if kind is Routes:
            return await self._aroutes(request.node)
        if kind is Together:
            return await self._async_party.perform(request)
        return await self.sharing.perform(request, self._carry)

    async def _carry(self, request: Any) -> Any:
        return await adrive(self._plans[type(request)](request), self._aexchange)

    def _exchange(self, request: Any) -> Any:
        """Carry out what a plan asks for: an `Exchange`, several at the same time, or `Routes`."""
        if type(request) is Exchange:
            return exchange(request)
        return self._routes(request.node) if type(request) is Routes else exchanges(request)

    async def _aexchange(self, request: Any) -> Any:
        if type(request) is Exchange:
            return await aexchange(request)
        if type(request) is Routes:
            return await self._aroutes(request.node)
        return await asyncio.gather(*map(aexchange, request))

    # ── the plans ────────────────────────────────────────────────────────────────────────────

    def _asking(self, run: Run) -> Exchange:
        return Exchange(self.nodes[run.node], run.keys[0], packed(run), 1, 0.0, run.undoing)

    def _run(self, run: Run) -> Flow[Any]:
        replies = yield self._asking(run)
        return (yield from self._answered(run, replies))

    def _answered(self, run: Run, replies: list[Any] | Fault) -> Flow[Any]:
        if isinstance(replies, Fault):
            return replies
        return (yield from self._read(run, replies[-1]))

    def _read(self, run: Run, reply: Any) -> Flow[Any]:
        if isinstance(reply, Exception):
            return (yield from self._insist(run, reply))
        return judged(self.nodes[run.node], run, reply)

    def _await(self, request: Await) -> Flow[Any]:
        run, signal, pause, more = request
        block = words(b"BLPOP", signal, *more, b"%.3f" % max(0.001, pause))
        woken = b"*2\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(signal), signal)
        replies = yield Exchange(self.nodes[run.node], signal, block + packed(run), 2, pause, run.undoing, woken=woken)
        told = yield from self._answered(run, replies)
        if type(replies) is list and isinstance(replies[0], Exception):
            told = waited(fault(self.nodes[run.node], replies[0]), told)
        return told

    def _signal(self, request: Signal) -> Flow[Any]:
        key, pause, index, more = request
        payload = words(b"BLPOP", key, *more, b"%.3f" % max(0.001, pause))
        replies = yield Exchange(self.nodes[index], key, payload, 1, pause)
        if isinstance(replies, Fault) or not isinstance(replies[0], Exception):
            return replies if isinstance(replies, Fault) else replies[0]
        return fault(self.nodes[index], replies[0])

    def _confirmed(self, request: Confirmed) -> Flow[Any]:
        runs, replicas, limit = request
        node, key, undoing, count = self.nodes[runs[0].node], runs[0].keys[0], runs[0].undoing, len(runs)
        for spell in (packed, spelled_out):
            payload = b"".join([*map(spell, runs), _wait(replicas, limit)])
            replies = yield Exchange(node, key, payload, count + 1, limit, undoing, None, _not_serving, count)
            if isinstance(replies, Fault):
                return replies
            errors = [reply for reply in replies if isinstance(reply, Exception)]
            if not errors or not any(isinstance(error, NoScriptError) for error in errors):
                break
        *told, confirmed = replies if len(replies) > count else (*replies, 0)
        if errors and errors[0] is not confirmed:
            return fault(node, errors[0])
        if errors:  # WAIT failed, and what went before it was carried out
            confirmed = fault(node, errors[0])
        elif type(confirmed) is not int:
            return fault(node, Nonsense(confirmed))
        told = list(map(partial(judged, node), runs, told))
        return next((each for each in told if isinstance(each, Fault)), (told, confirmed))

    def _insist(self, run: Run, error: Exception) -> Flow[Any]:
        """An error came back: load the script, follow the redirection, or say what is wrong."""
        node = self.nodes[run.node]
        asked = node.known(run.keys[0])
        for _ in range(REDIRECTS):
            route, prefix, before = None, b"", b""
            move = Redirection.read(error)
            if move and isinstance(node, ClusterNode):
                asked = route = node.redirected(move, asked)
                prefix, before = (words(b"ASKING"), _ASKING.source) if move.asking else (b"", b"")
            elif not isinstance(error, NoScriptError):
                break
            source = run.script._replace(source=before + run.script.source)
            payload = prefix + spelled_out(run._replace(script=source))
            replies = yield Exchange(node, run.keys[0], payload, 1 + bool(prefix), undoing=run.undoing, route=route)
            if isinstance(replies, Fault):
                return replies
            if not isinstance(replies[-1], Exception):
                return judged(node, run, replies[-1])
            error = replies[-1]
        return fault(node, error, where=asked.where if asked else "")

    def _batch(self, batch: Batch) -> Flow[list[Any]]:
        """One pipeline for each server that has some of the keys, all at the same time."""
        node, runs = self.nodes[batch.node], batch.runs
        answers: list[Any] = [None] * len(runs)
        parts = _grouped(range(len(runs)), lambda index: node.known(runs[index].keys[0]))
        if unknown := parts.pop(None, None):
            learnt = yield Routes(batch.node)
            absent = learnt if isinstance(learnt, Fault) else fault(node, RedisError("no server of the cluster has it"))
            for route, indexes in _grouped(unknown, lambda index: node.known(runs[index].keys[0])).items():
                parts.setdefault(route, []).extend(indexes)
            for index in parts.pop(None, ()):
                answers[index] = absent
        pipelines = [
            Exchange(
                node, runs[part[0]].keys[0], b"".join(packed(runs[index]) for index in part), len(part), route=route
            )
            for route, part in parts.items()
        ]
        replies = yield pipelines
        again = [index for index, reply in enumerate(replies) if isinstance(reply, Fault) and reply.stale]
        if again:
            second = yield [pipelines[index]._replace(route=None) for index in again]
            for index, reply in zip(again, second, strict=True):
                replies[index] = reply
        for part, told in zip(parts.values(), replies, strict=True):
            for place, index in enumerate(part):
                answers[index] = told if isinstance(told, Fault) else (yield from self._read(runs[index], told[place]))
        return answers

    def _command(self, command: Command) -> Flow[Any]:
        node = self.nodes[command.node]
        replies = yield from _twice(Exchange(node, command.key, words(*command.words), route=command.route))
        if isinstance(replies, Fault):
            return replies
        return replies[0] if not isinstance(replies[0], Exception) else fault(node, replies[0])

    def _routes(self, node: int) -> list[Route] | Fault:
        try:
            return self.nodes[node].routes()
        except (RedisError, OSError) as error:
            return fault(self.nodes[node], error)

    async def _aroutes(self, node: int) -> list[Route] | Fault:
        try:
            return await self.nodes[node].aroutes()
        except (RedisError, OSError) as error:
            return fault(self.nodes[node], error)


@lru_cache(maxsize=64)
def _wait(replicas: int, seconds: float) -> bytes:
    return words(b"WAIT", b"%d" % replicas, b"%d" % max(1, seconds * 1000))


def _grouped(indexes: Iterable[int], route_of: Callable[[int], Route | None]) -> dict[Route | None, list[int]]:
    groups: dict[Route | None, list[int]] = {}
    for index in indexes:
        groups.setdefault(route_of(index), []).append(index)
    return groups


def _twice(request: Exchange) -> Flow[list[Any] | Fault]:
    """Once more where an idle connection turned out to be closed: for what may be repeated."""
    replies: list[Any] | Fault = yield request
    if isinstance(replies, Fault) and replies.stale:
        replies = yield request
    return replies


def _not_serving(replies: list[Any]) -> bool:
    """The guard let nothing through: there is nothing that replicas could confirm."""
    return isinstance(replies[0], list) and replies[0][:1] not in ([0], [1])
