"""Does what a flow asks of Redis.

What to send and how to read the answer is written once, as flows over `Request`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, RedisError

from ..core.flow.drivers import adrive, drive
from ..core.flow.replies import UnreadableReply, waited
from ..core.flow.requests import (
    Batch,
    Block,
    BlockThenEval,
    CallFunction,
    Command,
    EvalAndWait,
    EvalScript,
    Fault,
    Flow,
    SendToAll,
    Sleep,
)
from ..core.flow.scripts import script
from ..core.waiting.waiters import AwaitTurn
from .discovery import ClusterNode, Node, Redirection
from .fanout.tasks import AsyncFanOut
from .fanout.threads import FanOut
from .multiplexer import Multiplexer
from .pool import ServerPool
from .request import Request, asend, check_reply, fault_of, send, send_all
from .resp import encode_command, encode_eval, encode_evalsha

MAX_REDIRECTS = 5
_ASKING = script("asking")
_REPLY_TYPES = int, list  # nearly all that scripts answer


class ListPools(NamedTuple):
    """Ask for every server of a node; answered by a list of routes or a `Fault`."""

    node: int = 0


class Executor:
    """Carries requests to nodes, blocking or on the running event loop."""

    def __init__(self, nodes: Sequence[Node], timeout: float, greeting: bytes = b"") -> None:
        self.nodes = nodes
        self.fan_out = FanOut(nodes, timeout, greeting)
        self._async_fan_out = AsyncFanOut(self.fan_out)
        self.multiplexer = Multiplexer(nodes, timeout, self._carry)
        self._plans: dict[type, Callable[[Any], Flow[Any]]] = {
            EvalScript: self._run,
            BlockThenEval: self._await,
            Batch: self._batch,
            Command: self._command,
            Block: self._signal,
            EvalAndWait: self._confirmed,
        }

    def perform(self, request: Any) -> Any:
        """Carry out ``request``, blocking; a `Fault` where no answer came."""
        kind = type(request)
        if kind is EvalScript:  # nearly always, and nearly always the first answer is the last
            replies = send(self._request(request))
            good = type(replies) is list and type(replies[0]) in _REPLY_TYPES
            return replies[0] if good else drive(self._answered(request, replies), send)
        if (plan := self._plans.get(kind)) is not None:
            return drive(plan(request), self._exchange)
        if kind is SendToAll:
            return self.fan_out.perform(request)
        if kind is AwaitTurn:
            return request.event.wait(request.seconds)
        if kind is Sleep:
            return time.sleep(request.seconds)
        if kind is CallFunction:
            return request.function(*request.args)
        return self._pools(request.node)

    async def aperform(self, request: Any) -> Any:
        """`perform` for asyncio."""
        kind = type(request)
        if kind is Sleep:
            return await asyncio.sleep(request.seconds)
        if kind is CallFunction:
            return await asyncio.to_thread(request.function, *request.args)
        if kind is AwaitTurn:
            return await request.event.wait_async(request.seconds)
        if kind is ListPools:
            return await self._aroutes(request.node)
        if kind is SendToAll:
            return await self._async_fan_out.perform(request)
        return await self.multiplexer.perform(request, self._carry)

    async def _carry(self, request: Any) -> Any:
        return await adrive(self._plans[type(request)](request), self._aexchange)

    def _exchange(self, request: Any) -> Any:
        """Carry out what a plan asks for: an `Request`, several at the same time, or `ListPools`."""
        if type(request) is Request:
            return send(request)
        return self._pools(request.node) if type(request) is ListPools else send_all(request)

    async def _aexchange(self, request: Any) -> Any:
        if type(request) is Request:
            return await asend(request)
        if type(request) is ListPools:
            return await self._aroutes(request.node)
        return await asyncio.gather(*map(asend, request))

    # ── the plans ────────────────────────────────────────────────────────────────────────────

    def _request(self, run: EvalScript) -> Request:
        return Request(self.nodes[run.node], run.keys[0], encode_evalsha(run), 1, 0.0, run.compensation)

    def _run(self, run: EvalScript) -> Flow[Any]:
        replies = yield self._request(run)
        return (yield from self._answered(run, replies))

    def _answered(self, run: EvalScript, replies: list[Any] | Fault) -> Flow[Any]:
        if isinstance(replies, Fault):
            return replies
        return (yield from self._read(run, replies[-1]))

    def _read(self, run: EvalScript, reply: Any) -> Flow[Any]:
        if isinstance(reply, Exception):
            return (yield from self._retry(run, reply))
        return check_reply(self.nodes[run.node], run, reply)

    def _await(self, request: BlockThenEval) -> Flow[Any]:
        run, signal, pause, more = request
        block = encode_command(b"BLPOP", signal, *more, b"%.3f" % max(0.001, pause))
        woken = b"*2\r\n$%d\r\n%b\r\n$1\r\n1\r\n" % (len(signal), signal)
        replies = yield Request(
            self.nodes[run.node], signal, block + encode_evalsha(run), 2, pause, run.compensation, woken=woken
        )
        told = yield from self._answered(run, replies)
        if type(replies) is list and isinstance(replies[0], Exception):
            told = waited(fault_of(self.nodes[run.node], replies[0]), told)
        return told

    def _signal(self, request: Block) -> Flow[Any]:
        key, pause, index, more = request
        payload = encode_command(b"BLPOP", key, *more, b"%.3f" % max(0.001, pause))
        replies = yield Request(self.nodes[index], key, payload, 1, pause)
        if isinstance(replies, Fault) or not isinstance(replies[0], Exception):
            return replies if isinstance(replies, Fault) else replies[0]
        return fault_of(self.nodes[index], replies[0])

    def _confirmed(self, request: EvalAndWait) -> Flow[Any]:
        runs, replicas, limit = request
        node, key, undoing, count = self.nodes[runs[0].node], runs[0].keys[0], runs[0].compensation, len(runs)
        for spell in (encode_evalsha, encode_eval):
            payload = b"".join([*map(spell, runs), _wait(replicas, limit)])
            replies = yield Request(node, key, payload, count + 1, limit, undoing, None, _not_serving, count)
            if isinstance(replies, Fault):
                return replies
            errors = [reply for reply in replies if isinstance(reply, Exception)]
            if not errors or not any(isinstance(error, NoScriptError) for error in errors):
                break
        *told, confirmed = replies if len(replies) > count else (*replies, 0)
        if errors and errors[0] is not confirmed:
            return fault_of(node, errors[0])
        if errors:  # WAIT failed, and what went before it was carried out
            confirmed = fault_of(node, errors[0])
        elif type(confirmed) is not int:
            return fault_of(node, UnreadableReply(confirmed))
        told = list(map(partial(check_reply, node), runs, told))
        return next((each for each in told if isinstance(each, Fault)), (told, confirmed))

    def _retry(self, run: EvalScript, error: Exception) -> Flow[Any]:
        """An error came back: load the script, follow the redirection, or say what is wrong."""
        node = self.nodes[run.node]
        asked = node.known_pool(run.keys[0])
        for _ in range(MAX_REDIRECTS):
            route, prefix, before = None, b"", b""
            move = Redirection.read(error)
            if move and isinstance(node, ClusterNode):
                asked = route = node.redirected(move, asked)
                prefix, before = (encode_command(b"ASKING"), _ASKING.source) if move.asking else (b"", b"")
            elif not isinstance(error, NoScriptError):
                break
            source = run.script._replace(source=before + run.script.source)
            payload = prefix + encode_eval(run._replace(script=source))
            replies = yield Request(
                node, run.keys[0], payload, 1 + bool(prefix), compensation=run.compensation, pool=route
            )
            if isinstance(replies, Fault):
                return replies
            if not isinstance(replies[-1], Exception):
                return check_reply(node, run, replies[-1])
            error = replies[-1]
        return fault_of(node, error, where=asked.where if asked else "")

    def _batch(self, batch: Batch) -> Flow[list[Any]]:
        """One pipeline for each server that has some of the keys, all at the same time."""
        node, runs = self.nodes[batch.node], batch.script_calls
        answers: list[Any] = [None] * len(runs)
        parts = _grouped(range(len(runs)), lambda index: node.known_pool(runs[index].keys[0]))
        if unknown := parts.pop(None, None):
            learnt = yield ListPools(batch.node)
            absent = (
                learnt if isinstance(learnt, Fault) else fault_of(node, RedisError("no server of the cluster has it"))
            )
            for route, indexes in _grouped(unknown, lambda index: node.known_pool(runs[index].keys[0])).items():
                parts.setdefault(route, []).extend(indexes)
            for index in parts.pop(None, ()):
                answers[index] = absent
        pipelines = [
            Request(
                node,
                runs[part[0]].keys[0],
                b"".join(encode_evalsha(runs[index]) for index in part),
                len(part),
                pool=route,
            )
            for route, part in parts.items()
        ]
        replies = yield pipelines
        again = [index for index, reply in enumerate(replies) if isinstance(reply, Fault) and reply.stale]
        if again:
            second = yield [pipelines[index]._replace(pool=None) for index in again]
            for index, reply in zip(again, second, strict=True):
                replies[index] = reply
        for part, told in zip(parts.values(), replies, strict=True):
            for place, index in enumerate(part):
                answers[index] = told if isinstance(told, Fault) else (yield from self._read(runs[index], told[place]))
        return answers

    def _command(self, command: Command) -> Flow[Any]:
        node = self.nodes[command.node]
        replies = yield from _send_twice(Request(node, command.key, encode_command(*command.words), pool=command.pool))
        if isinstance(replies, Fault):
            return replies
        return replies[0] if not isinstance(replies[0], Exception) else fault_of(node, replies[0])

    def _pools(self, node: int) -> list[ServerPool] | Fault:
        try:
            return self.nodes[node].pools()
        except (RedisError, OSError) as error:
            return fault_of(self.nodes[node], error)

    async def _aroutes(self, node: int) -> list[ServerPool] | Fault:
        try:
            return await self.nodes[node].apools()
        except (RedisError, OSError) as error:
            return fault_of(self.nodes[node], error)


@lru_cache(maxsize=64)
def _wait(replicas: int, seconds: float) -> bytes:
    return encode_command(b"WAIT", b"%d" % replicas, b"%d" % max(1, seconds * 1000))


def _grouped(
    indexes: Iterable[int], route_of: Callable[[int], ServerPool | None]
) -> dict[ServerPool | None, list[int]]:
    groups: dict[ServerPool | None, list[int]] = {}
    for index in indexes:
        groups.setdefault(route_of(index), []).append(index)
    return groups


def _send_twice(request: Request) -> Flow[list[Any] | Fault]:
    """Once more where an idle connection turned out to be closed: for what may be repeated."""
    replies: list[Any] | Fault = yield request
    if isinstance(replies, Fault) and replies.stale:
        replies = yield request
    return replies


def _not_serving(replies: list[Any]) -> bool:
    """The guard let nothing through: there is nothing that replicas could confirm."""
    return isinstance(replies[0], list) and replies[0][:1] not in ([0], [1])
