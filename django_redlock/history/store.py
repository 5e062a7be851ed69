"""The stores of the history. In Redis each minute is a key with a ttl.

With several nodes, counts are written to the first node that replies, and read from all nodes. Counts on a node that is
down are missing.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ..core.algorithms.retries import run_idempotent
from ..core.flow.replies import fault_error, parse_reply
from ..core.flow.requests import Batch, EvalScript, Fault, Flow
from ..core.flow.scripts import script
from .minute_stats import MAX_EVENTS, MINUTES, MinuteStats, minutes_until, read_minute, without_forced

TTL_MS = (MINUTES + 2) * 60_000
NAMES_PER_SCRIPT = 50  # lock names in one run of history_add.lua: about 0.5 ms of the server's time


class Loss(NamedTuple):
    """Two counts for the lock ``name`` in one minute: how often it was lost, and how often it was released by force."""

    name: str
    lost: int
    forced: int


class HistoryStore(Protocol):
    """A store for one backend's counts of lock events, grouped by minute. A minute is given in minutes since the epoch.

    The methods are flows (`core.flow`), and raise ``LockUnavailable``.
    """

    def add(self, minute: int, texts: Mapping[str, str], max_names: int) -> Flow[None]:
        """Add one process' counts to ``minute``. Names beyond the first ``max_names`` are counted together.

        ``texts``: counts and last events by lock name, as texts of `minute_stats`.
        """

    def read(self, name: str, minutes: Sequence[int]) -> Flow[list[MinuteStats]]:
        """Return the counts of the lock ``name`` in each of ``minutes``."""

    def losses(self, minutes: Sequence[int]) -> Flow[list[Loss]]:
        """Return, for each of ``minutes``, a `Loss` for each lock that was lost or released by force in that minute."""


def last_hour(backend: Any, name: str = "") -> list[MinuteStats]:
    """Return the counts of the lock ``name`` in each of the last sixty minutes, the current minute last.

    ``name``: ``""`` means all locks of ``backend``. Returns an empty list if the backend has no store for a history.
    Raises ``LockUnavailable``.
    """
    stats: list[MinuteStats] = backend.drive(_read(backend, name))
    return stats


async def alast_hour(backend: Any, name: str = "") -> list[MinuteStats]:
    """`last_hour` for asyncio."""
    stats: list[MinuteStats] = await backend.adrive(_read(backend, name))
    return stats


def add(backend: Any, minute: int, texts: Mapping[str, str]) -> None:
    """Add one process' counts to ``minute`` in the history of ``backend``. Raises ``LockUnavailable``.

    ``minute``: minutes since the epoch. ``texts``: counts and last events by lock name, as texts of `minute_stats`.
    Does nothing if the backend has no store for a history.
    """
    if (store := backend.history_store) is not None:
        backend.drive(store.add(minute, texts, backend.history))


def lost_names(backend: Any) -> dict[str, int]:
    """Return how often each lock of ``backend`` was lost in the last hour, by name. Names without a loss are left out.

    For each force release, one loss is not counted: the loss that the former holder reports. Raises
    ``LockUnavailable``.
    """
    if (store := backend.history_store) is None:
        return {}
    found: Counter[str] = Counter()
    for name, lost, forced in backend.drive(store.losses(minutes_until(time.time()))):
        found[name] += lost - forced
    return dict(+found)


def _read(backend: Any, name: str) -> Flow[list[MinuteStats]]:
    if (store := backend.history_store) is None:
        return []
    minutes: list[MinuteStats] = yield from store.read(name, minutes_until(time.time()))
    return without_forced(minutes)


class RedisHistory:
    """The history of a backend in Redis: a hash for each minute, under keys that begin with ``prefix``.

    ``nodes``: the number of nodes.
    """

    def __init__(self, prefix: str, nodes: int) -> None:
        self._prefix = prefix
        self._nodes = nodes

    def _key(self, minute: int) -> bytes:
        return f"{self._prefix}:history:{minute}".encode()

    def add(self, minute: int, texts: Mapping[str, str], max_names: int) -> Flow[None]:
        """Add one process' counts to ``minute`` on the first node that replies, as in `HistoryStore.add`.

        Raises ``LockUnavailable`` if no node replies.
        """
        names = iter(texts.items())
        while page := list(islice(names, NAMES_PER_SCRIPT)):
            words = json.dumps([word for pair in page for word in pair], ensure_ascii=False).encode()
            args = (b"%d" % TTL_MS, b"%d" % max_names, b"%d" % MAX_EVENTS, words)
            yield from self._run_on_first(EvalScript(script("history_add"), (self._key(minute),), args))

    def _run_on_first(self, run: EvalScript) -> Flow[None]:
        reply: Any = None
        for node in range(self._nodes):
            reply = yield from run_idempotent(run.at(node))
            if not isinstance(reply, Fault):
                return
        raise fault_error("", reply)

    def read(self, name: str, minutes: Sequence[int]) -> Flow[list[MinuteStats]]:
        """Return the counts of the lock ``name`` in each of ``minutes``, the sums of all nodes that reply.

        Raises ``LockUnavailable`` if no node replies.
        """
        answers = yield from self._ask_all("history_read", (name.encode(),), minutes)
        by_minute = {
            minute: [reply for reply in each if reply] for minute, *each in zip(minutes, *answers, strict=True)
        }
        return [parse_reply(name, _read_minute, replies, minute) for minute, replies in by_minute.items()]

    def losses(self, minutes: Sequence[int]) -> Flow[list[Loss]]:
        """Return, for each of ``minutes``, a `Loss` for each lock that was lost or released by force in that minute.

        Each event is counted on one node only, so the list may have several `Loss` tuples for one lock and minute, one
        from each node. The caller adds them up. Raises ``LockUnavailable`` if no node replies.
        """
        answers = yield from self._ask_all("history_losses", (), minutes)
        return [loss for replies in answers for reply in replies for loss in parse_reply("", _read_losses, reply)]

    def _ask_all(self, name: str, args: tuple[bytes, ...], minutes: Sequence[int]) -> Flow[list[list[Any]]]:
        """Run the Lua script ``name`` for each of ``minutes`` on every node. ``args``: the arguments of the script.

        Returns a list of replies, in the order of ``minutes``, for each node that has replied. Raises
        ``LockUnavailable`` if no node replies.
        """
        answers: list[list[Any]] = []
        fault: Fault | None = None
        for node in range(self._nodes):
            replies = yield Batch([EvalScript(script(name), (self._key(each),), args, node) for each in minutes], node)
            fault = next((reply for reply in replies if isinstance(reply, Fault)), None)
            if fault is None:
                answers.append(replies)
        if not answers and fault is not None:
            raise fault_error("", fault)
        return answers


def _read_losses(reply: Sequence[Any]) -> list[Loss]:
    names, lost, forced = reply[::3], reply[1::3], reply[2::3]
    return [Loss(name.decode(errors="replace"), *counts) for name, *counts in zip(names, lost, forced, strict=True)]


def _read_minute(replies: Sequence[Sequence[Any]], minute: int) -> MinuteStats:
    texts = [text.decode(errors="replace") for text, _ in replies]
    return read_minute(minute * 60.0, texts, not any(crowded for _, crowded in replies))
