"""The last hour of locks, kept in Redis: one key for each minute, with a ttl.

Of several nodes the first that answers keeps it, and all are asked for it: what a node that is gone had is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ..core.algorithms.single_node import run_idempotent
from ..core.flow.replies import fault_error, parse_reply
from ..core.flow.requests import Batch, EvalScript, Fault, Flow
from ..core.flow.scripts import script
from .counters import MAX_EVENTS, MINUTES, MinuteStats, read_minute

TTL_MS = (MINUTES + 2) * 60_000  # ms
NAMES_IN_SCRIPT = 50  # names in one script: some 0.5 ms of the server's time


def _key(prefix: str, minute: int) -> bytes:
    return f"{prefix}:history:{minute}".encode()


def add(prefix: str, minute: int, texts: Mapping[str, str], most: int, nodes: int) -> Flow[None]:
    """Add ``texts`` to what there is of ``minute``. Raises ``LockUnavailable`` when no node takes it."""
    names = iter(texts.items())
    while page := list(islice(names, NAMES_IN_SCRIPT)):
        words = json.dumps([word for pair in page for word in pair], ensure_ascii=False).encode()
        args = (b"%d" % TTL_MS, b"%d" % most, b"%d" % MAX_EVENTS, words)
        yield from _first(EvalScript(script("history_add"), (_key(prefix, minute),), args), nodes)


def _first(run: EvalScript, nodes: int) -> Flow[None]:
    reply: Any = None
    for node in range(nodes):
        reply = yield from run_idempotent(run.at(node))
        if not isinstance(reply, Fault):
            return
    raise fault_error("", reply)


def read(prefix: str, name: str, minutes: Sequence[int], nodes: int) -> Flow[list[MinuteStats]]:
    """What there is of ``name`` in each of ``minutes``. Raises ``LockUnavailable`` when no node can be asked."""
    found: list[list[Any]] = []
    fault: Fault | None = None
    for node in range(nodes):
        runs = [
            EvalScript(script("history_read"), (_key(prefix, minute),), (name.encode(),), node) for minute in minutes
        ]
        replies = yield Batch(runs, node)
        fault = next((reply for reply in replies if isinstance(reply, Fault)), None)
        if fault is None:
            found.append(replies)
    if not found and fault is not None:
        raise fault_error(name, fault)
    told = {minute: [each for each in seen if each] for minute, *seen in zip(minutes, *found, strict=True)}
    return [parse_reply(name, _minute, seen, minute) for minute, seen in told.items()]


def _minute(seen: Sequence[Sequence[Any]], minute: int) -> MinuteStats:
    texts = [text.decode(errors="replace") for text, _ in seen]
    return read_minute(minute * 60.0, texts, not any(crowded for _, crowded in seen))
