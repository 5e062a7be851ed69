"""Translates the requests of flows (`core.flow`) into Redis commands, and the replies into results of requests.

A plan is a generator: it yields a `ServerRequest`, `AwaitFuture` or `Sleep`, receives the reply, and returns the result
for the flow. Threads and asyncio use the same plans.
"""

from __future__ import annotations

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from redis.exceptions import AskError, MovedError, NoScriptError, ReadOnlyError, RedisError

from ..core.flow.replies import UnreadableReply
from ..core.flow.requests import (
    AfterBlock,
    Batch,
    Block,
    BlockThenEval,
    Command,
    EvalAndWait,
    EvalScript,
    Fault,
    Flow,
    ListPools,
    SetIfAbsent,
    Sleep,
)
from .connection import AllInUse, ConnectionSilent
from .nodes.node import Node
from .pool import ServerPool
from .resp import encode_command, encode_eval, encode_evalsha, encode_set_if_absent
from .round_trip import ServerRequest

MAX_REDIRECTS = 5
LPOP_SECONDS = 0.02, 0.5  # the shortest and the longest pause of a waiter whose server or proxy refuses BLPOP
REMEMBERED_SECONDS = 300.0  # seconds for which a server that refuses BLPOP is not asked to block
_CANNOT_BLOCK = re.compile(r"(?i)unknown command|no permissions|NOPERM|not (allowed|supported)|unsupported|disabled")
REPLY_TYPES = int, list  # the types of nearly all replies of scripts
_TIME = encode_command(b"TIME")
Nodes = Sequence[Node]


def eval_request(nodes: Nodes, call: EvalScript) -> ServerRequest:
    """Return the request that runs the script of ``call`` with EVALSHA, on the server that has the keys of ``call``."""
    return ServerRequest(nodes[call.node], call.keys[0], encode_evalsha(call), 1, call.compensation)


def set_request(nodes: Nodes, request: SetIfAbsent) -> ServerRequest:
    """Return the request that sends SET NX for ``request`` to the server that has the key."""
    key, value, ttl_ms, node, compensation = request
    return ServerRequest(nodes[node], key, encode_set_if_absent(key, value, ttl_ms), 1, compensation)


def read_set_reply(replies: list[Any] | Fault) -> bool | Fault | None:
    """Parse ``replies`` to a `set_request`: ``True`` if the key was set, ``None`` if it existed, or a `Fault`."""
    if isinstance(replies, Fault):
        return replies
    return True if replies[0] == b"OK" else None


def read_reply(nodes: Nodes, call: EvalScript, replies: list[Any] | Fault, index: int = -1) -> Flow[Any]:
    """Return the result of ``call``, whose reply is ``replies[index]``, or a `Fault` if there is no usable reply.

    After NOSCRIPT, sends the source of the script. After MOVED or ASK, sends ``call`` to the server that the reply
    names. Returns a `Fault` after any other error, and after `MAX_REDIRECTS` redirections.
    """
    node, pool = nodes[call.node], None
    for tries in range(MAX_REDIRECTS + 1):
        if isinstance(replies, Fault):
            return replies
        if not isinstance(reply := replies[index], Exception):
            return node.check_reply(call, reply)
        target, prefix, pool = None, b"", pool or node.known_pool(call.keys[0])
        if isinstance(reply, AskError) and (target := node.redirected(reply, pool)):
            pool = target
            if not isinstance(reply, MovedError):
                prefix = encode_command(b"ASKING")
        elif not isinstance(reply, NoScriptError):
            break
        if tries < MAX_REDIRECTS:
            payload, index = prefix + encode_eval(call), -1
            replies = yield ServerRequest(node, call.keys[0], payload, 1 + bool(prefix), call.compensation, target)
    return node.record_fault(reply, where=pool.where if pool else "")


def _eval(nodes: Nodes, call: EvalScript) -> Flow[Any]:
    replies = yield eval_request(nodes, call)
    return (yield from read_reply(nodes, call, replies))


def _blpop(keys: Sequence[bytes], seconds: float) -> bytes:
    # Redis 6.2 rounds 0.001 s down to 0, which means no timeout.
    return encode_command(b"BLPOP", *keys, b"%.3f" % max(0.002, seconds))


def _block(nodes: Nodes, block: Block) -> Flow[Any]:
    node, keys = nodes[block.node], block.keys
    pool = node.known_pool(keys[0])
    if pool is None or pool.can_block:
        payload, start = _blpop(keys, block.seconds), time.monotonic()
        reply = _first(node, (yield ServerRequest(node, keys[0], payload, blocks=block.seconds)))
        if not _falls_back_to_polling(pool, reply, time.monotonic() - start):
            return reply
    return (yield from _poll(node, keys, block.seconds))


def _block_then_eval(nodes: Nodes, block: BlockThenEval) -> Flow[Any]:
    call, keys, seconds = block
    node, key = nodes[call.node], keys[0]
    pool, start = node.known_pool(key), time.monotonic()
    if pool is None or pool.can_block:
        payload = _TIME + _blpop(keys, seconds) + encode_evalsha(call)
        replies = yield ServerRequest(node, key, payload, 3, call.compensation, blocks=seconds)
        block_reply = _first(node, replies if isinstance(replies, Fault) else replies[1:])
        elapsed = time.monotonic() - start
        must_poll = _falls_back_to_polling(pool, block_reply, elapsed)
        if not isinstance(replies, Fault):
            reply = yield from read_reply(nodes, call, replies)
            if reply is replies[-1]:  # otherwise it was repeated now, perhaps on another server
                elapsed = _seconds_between(replies[0], reply)
            refused = type(reply) is list and reply[:1] == [0]
            if refused and type(block_reply) is Fault and block_reply.refused and not must_poll:
                reply = block_reply  # the flow would repeat both without a pause
            # The script has run, perhaps as the last try, after which no waiter is listed: the flow decides anew.
            return AfterBlock(reply, elapsed)
        if not must_poll:
            return replies
    yield from _poll(node, keys, seconds)
    elapsed = time.monotonic() - start
    reply = yield from _eval(nodes, call)
    if isinstance(reply, Fault) and reply.stale:
        reply = yield from _eval(nodes, call)
    return AfterBlock(reply, elapsed)


def _seconds_between(clock: Any, reply: Any) -> float:
    """Return the seconds from ``clock``, a server's reply to TIME, to the time in its later ``reply``.

    Returns 0 if the server has refused TIME.
    """
    try:
        micros: int = reply[2] if type(reply) is list else reply
        return max(0.0, micros / 1e6 - int(clock[0]) - int(clock[1]) / 1e6)
    except (TypeError, ValueError, LookupError):
        return 0.0


def _falls_back_to_polling(pool: ServerPool | None, reply: Any, seconds: float) -> bool:
    """Return whether to poll after ``reply`` to a blocking command that took ``seconds``. Marks ``pool`` if so.

    A server or proxy may refuse the command, or close the connection at once. Two closed connections in a row are
    needed, because a server also closes connections when it restarts.
    """
    if not isinstance(reply, Fault):
        if pool is not None:
            pool.blocks_closed = 0
        return False
    if isinstance(reply.error, AllInUse):
        return True
    if pool is None:
        return False
    if reply.stale and seconds < pool.timeout and not isinstance(reply.error, ConnectionSilent | ReadOnlyError):
        pool.blocks_closed += 1
    elif not (reply.refused and _CANNOT_BLOCK.search(str(reply.error))):
        return False
    if reply.refused or pool.blocks_closed > 1:
        pool.poll_until = time.monotonic() + REMEMBERED_SECONDS
    return not pool.can_block


def _poll(node: Node, keys: Sequence[bytes], seconds: float) -> Flow[Any]:
    """Imitate BLPOP for ``seconds``: repeat LPOP with growing pauses.

    Returns a pair, the key of the list and its element; ``None`` if no element came in time; or a `Fault`.
    """
    end, longest = time.monotonic() + seconds, 2 * LPOP_SECONDS[0]
    while True:
        for key in keys:
            reply = _first(node, (yield ServerRequest(node, key, encode_command(b"LPOP", key))))
            if isinstance(reply, Fault) and reply.refused and _CANNOT_BLOCK.search(str(reply.error)):
                longest = LPOP_SECONDS[1]
            elif reply is not None:
                return reply if isinstance(reply, Fault) else [key, reply]
        left = end - time.monotonic()
        if left <= 0:
            return None
        yield Sleep(min(left, random.uniform(longest / 2, longest)))
        longest = min(2 * longest, LPOP_SECONDS[1])


def _eval_and_wait(nodes: Nodes, request: EvalAndWait) -> Flow[Any]:
    calls, replicas, seconds = request
    node, key, compensation, count = nodes[calls[0].node], calls[0].keys[0], calls[0].compensation, len(calls)
    for encode in (encode_evalsha, encode_eval):
        payload = b"".join([*map(encode, calls), _wait(replicas, seconds)])
        replies = yield ServerRequest(node, key, payload, count + 1, compensation, blocks=seconds, awaits_replicas=True)
        if isinstance(replies, Fault):
            return replies
        if not any(isinstance(reply, NoScriptError) for reply in replies):
            break
    *answers, confirmed = replies if len(replies) > count else (*replies, 0)
    answers = list(map(node.check_reply, calls, answers))
    if stale := [answer for answer in answers if isinstance(answer, Fault) and answer.stale]:
        return stale[0]
    if isinstance(confirmed, Exception):
        return answers, node.record_fault(confirmed)
    return (answers, confirmed) if type(confirmed) is int else node.record_fault(UnreadableReply(confirmed))


def _command(nodes: Nodes, command: Command) -> Flow[Any]:
    node = nodes[command.node]
    request = ServerRequest(node, command.key, encode_command(*command.words), pool=command.pool)
    replies = yield request
    if isinstance(replies, Fault) and replies.stale:  # an idle connection was closed; commands may be repeated
        replies = yield request
    return _first(node, replies)


def _batch(nodes: Nodes, batch: Batch) -> Flow[list[Any]]:
    """Run the scripts in one pipeline for each server that has some of their keys. Returns the replies in order."""
    node, calls = nodes[batch.node], batch.calls
    answers: list[Any] = [None] * len(calls)
    parts: defaultdict[ServerPool | None, list[int]] = defaultdict(list)
    for index, call in enumerate(calls):
        parts[node.known_pool(call.keys[0])].append(index)
    for pool, part in parts.items():  # no pool: the server of the first key is asked for, and redirects other calls
        payload = b"".join([encode_evalsha(calls[index]) for index in part])
        request = ServerRequest(node, calls[part[0]].keys[0], payload, len(part), pool=pool)
        replies = yield request
        if isinstance(replies, Fault) and replies.stale:  # an idle connection was closed; scripts may be repeated
            replies = yield request._replace(pool=None)
        for position, index in enumerate(part):
            reply: Any = replies if isinstance(replies, Fault) else replies[position]
            plain = type(reply) in REPLY_TYPES
            answers[index] = reply if plain else (yield from read_reply(nodes, calls[index], replies, position))
    return answers


def _list_pools(nodes: Nodes, request: ListPools) -> Flow[list[ServerPool] | Fault]:
    node = nodes[request.node]
    try:
        return (yield from node.pools())
    except (RedisError, OSError) as error:
        return node.record_fault(error)


def _first(node: Node, replies: list[Any] | Fault) -> Any:
    if isinstance(replies, Fault):
        return replies
    return node.record_fault(replies[0]) if isinstance(replies[0], Exception) else replies[0]


@lru_cache(maxsize=64)
def _wait(replicas: int, seconds: float) -> bytes:
    return encode_command(b"WAIT", b"%d" % replicas, b"%d" % max(1, seconds * 1000))


PLANS: Mapping[type, Callable[[Nodes, Any], Flow[Any]]] = {
    BlockThenEval: _block_then_eval,
    Batch: _batch,
    Command: _command,
    Block: _block,
    EvalAndWait: _eval_and_wait,
    ListPools: _list_pools,
}
