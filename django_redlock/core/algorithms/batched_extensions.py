"""Extends many mutexes on one node with few scripts, which is cheaper than one script for each mutex."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from ..flow.requests import Batch, EvalScript, Fault, Flow
from ..primitives.base import MUTEX, Primitive, sized_request
from ..values import Lease

MAX_MUTEXES = 64  # in one script: about 0.1 ms of a server's time
Pairs = Sequence[tuple[Lease, float]]  # leases with their new ttl in seconds


def run_extensions(primitive: Primitive, leases: Pairs, more: Sequence[EvalScript]) -> Flow[list[Any]]:
    """Extend ``leases`` and run the scripts ``more`` in one pipeline. Returns a reply for each lease, in order.

    One joint script extends many mutexes. A mutex that the joint script did not extend gets its own script in a second
    pipeline. Only the reply to its own script shows that a mutex is lost: a proxy in front of several servers may
    refuse a script with keys of several servers, or send it to one of them only. The replies to ``more`` are ignored.
    """
    parts = _split(primitive, leases)
    replies = yield Batch([*(_joined(primitive, [leases[index] for index in part]) for part in parts), *more])
    answers: list[Any] = [None] * len(leases)
    for part, reply in zip(parts, replies, strict=False):
        for index, answer in zip(part, [reply] if len(part) == 1 else _each(reply, len(part)), strict=True):
            answers[index] = answer
    unknown = [index for index, answer in enumerate(answers) if answer is None]
    if unknown:
        runs = [primitive.extend_request(leases[index][0].claim, leases[index][1]) for index in unknown]
        for index, answer in zip(unknown, (yield Batch(runs)), strict=True):
            answers[index] = answer
    return answers


def _split(primitive: Primitive, leases: Pairs) -> list[list[int]]:
    """Return the indexes of ``leases`` in groups that one joint script can extend."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    joint = primitive.extend_script is MUTEX.extend_script
    for index, (lease, ttl) in enumerate(leases):
        alike[(ttl, lease.claim.fencing) if joint and not lease.claim.require_all else index].append(index)
    return [part[first : first + MAX_MUTEXES] for part in alike.values() for first in range(0, len(part), MAX_MUTEXES)]


def _joined(primitive: Primitive, leases: Pairs) -> EvalScript:
    first, ttl = leases[0]
    run = primitive.extend_request(first.claim, ttl)
    if len(leases) == 1:
        return run
    runs = [run, *(primitive.extend_request(lease.claim, ttl) for lease, ttl in leases[1:])]
    keys, tokens = tuple(key for each in runs for key in each.keys), [each.args[2] for each in runs]
    return sized_request(run.script, keys, (*run.args[:2], *tokens))


def _each(reply: Any, number: int) -> list[Any]:
    """Return one reply for each of ``number`` mutexes, from the reply of their joint script.

    ``None``: the mutex needs a script of its own, because some mutex was not extended.
    """
    if reply == number:
        return [1] * number
    known = isinstance(reply, Fault) and (reply.transient or not reply.refused)
    return [reply if known else None] * number
