"""Extends many mutexes on one node with few scripts, which is cheaper than one script for each mutex."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from ..flow.requests import Batch, EvalScript, Fault, Flow
from ..flow.scripts import script

MAX_MUTEXES = 64  # in one script: about 0.1 ms of a server's time
_EXTEND, _EXTEND_MANY = script("mutex_extend"), script("mutex_extend_many")


def run_extensions(runs: Sequence[EvalScript], more: Sequence[EvalScript]) -> Flow[list[Any]]:
    """Run the extensions ``runs`` and the scripts ``more`` in one pipeline. Returns the replies to ``runs``, in order.

    One joint script extends many mutexes. A mutex that the joint script did not extend gets its own script in a second
    pipeline. Only the reply to its own script shows that a mutex is lost: a proxy in front of several servers may
    refuse a script with keys of several servers, or send it to one of them only. The replies to ``more`` are ignored.
    """
    parts = _split(runs)
    replies = yield Batch([*(_joined([runs[index] for index in part]) for part in parts), *more])
    answers: list[Any] = [None] * len(runs)
    for part, reply in zip(parts, replies, strict=False):
        for index, answer in zip(part, [reply] if len(part) == 1 else _each(reply, len(part)), strict=True):
            answers[index] = answer
    unknown = [index for index, answer in enumerate(answers) if answer is None]
    if unknown:
        for index, answer in zip(unknown, (yield Batch([runs[index] for index in unknown])), strict=True):
            answers[index] = answer
    return answers


def _split(runs: Sequence[EvalScript]) -> list[list[int]]:
    """Return the indexes of ``runs`` in groups of mutexes with equal arguments, which one joint script can extend."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        alike[run.args[1:] if run.script is _EXTEND else index].append(index)
    return [part[first : first + MAX_MUTEXES] for part in alike.values() for first in range(0, len(part), MAX_MUTEXES)]


def _joined(runs: Sequence[EvalScript]) -> EvalScript:
    """Return one request that does the work of all ``runs``, which extend mutexes with equal arguments."""
    if len(runs) == 1:
        return runs[0]
    keys, args = [run.keys[0] for run in runs], [*runs[0].args[1:], *(run.args[0] for run in runs)]
    return EvalScript(_EXTEND_MANY._replace(keys=len(keys), args=len(args)), keys, args)


def _each(reply: Any, number: int) -> list[Any]:
    """Return one reply for each of ``number`` mutexes, from the reply of `_EXTEND_MANY`.

    Each is 1 for an extended mutex, ``None`` if the mutex needs a script of its own, or a `Fault` if the node gave no
    usable reply.
    """
    if isinstance(reply, Fault) and (reply.transient or not reply.refused):
        return [reply] * number
    return (
        [1 if done == 1 else None for done in reply]
        if type(reply) is list and len(reply) == number
        else [None] * number
    )
