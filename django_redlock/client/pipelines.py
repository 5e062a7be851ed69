"""Runs many scripts on one node: one pipeline for each server that has some of the keys, all sent at the same time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis.exceptions import RedisError

from ..core.flow.requests import Batch, EvalScript, Fault, Flow, ListPools
from .errors import fault_of
from .nodes.protocol import Node
from .pool import ServerPool
from .request import Request
from .resp import encode_evalsha

Read = Callable[[EvalScript, Any], Flow[Any]]


def batch_flow(node: Node, batch: Batch, read: Read) -> Flow[list[Any]]:
    """Run the scripts of ``batch`` on ``node``, and return a list with one answer for each script, in order.

    ``read(call, reply)`` is a flow (`core.flow`) that returns the answer to a script from its reply. The answer is a
    `Fault` if there is no usable reply.
    """
    calls = batch.script_calls
    answers: list[Any] = [None] * len(calls)
    parts = _by_pool(node, calls, range(len(calls)))
    if unknown := parts.pop(None, None):
        pools = yield ListPools(batch.node)
        for pool, indexes in _by_pool(node, calls, unknown).items():
            parts[pool] += indexes
        if unserved := parts.pop(None, None):
            error = RedisError("no server of the cluster has it")
            fault = pools if isinstance(pools, Fault) else fault_of(node, error)
            for index in unserved:
                answers[index] = fault
    requests = [_pipeline(node, [calls[index] for index in part], pool) for pool, part in parts.items()]
    replies = yield requests
    stale = [index for index, reply in enumerate(replies) if isinstance(reply, Fault) and reply.stale]
    if stale:  # an idle connection was closed; scripts may be repeated
        repeated = yield [requests[index]._replace(pool=None) for index in stale]
        for index, reply in zip(stale, repeated, strict=True):
            replies[index] = reply
    for part, reply in zip(parts.values(), replies, strict=True):
        for position, index in enumerate(part):
            answers[index] = reply if isinstance(reply, Fault) else (yield from read(calls[index], reply[position]))
    return answers


def _by_pool(
    node: Node, calls: Sequence[EvalScript], indexes: Iterable[int]
) -> defaultdict[ServerPool | None, list[int]]:
    """Group ``indexes``, indexes of ``calls``, by the pool of the server that has the key of the call.

    The group ``None`` has the calls whose server isn't known.
    """
    parts: defaultdict[ServerPool | None, list[int]] = defaultdict(list)
    for index in indexes:
        parts[node.known_pool(calls[index].keys[0])].append(index)
    return parts


def _pipeline(node: Node, calls: Sequence[EvalScript], pool: ServerPool | None) -> Request:
    return Request(node, calls[0].keys[0], b"".join(map(encode_evalsha, calls)), len(calls), pool=pool)
