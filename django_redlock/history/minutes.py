"""Counts of lock events per minute: one hash of counters in Redis for each minute of the last hour.

The hash has fields for each lock and for the store as a whole: a number for each kind of event, such as ``acquired
stock``, and the last events as lines of JSON, such as ``events stock``. In the fields of the store, the lock's name is
empty, and the events are losses, forced releases and abandoned locks.

With several nodes, the counts are written to the first node that replies. Reading adds up the counts of all nodes.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ..core.algorithms.retries import run_idempotent
from ..core.events import logger
from ..core.flow.replies import fault_error, parse_reply
from ..core.flow.requests import Batch, EvalScript, Fault, Flow
from ..core.flow.scripts import script
from ..core.owner import Owner, clean
from .event_queue import EventRecord

MINUTES = 60
TTL_MS = (MINUTES + 2) * 60_000
MAX_EVENTS = 5  # events kept for a lock in a minute
MAX_TEXT = 160  # longest text in an event, in characters
COUNTED = ("acquired", "refused", "lost", "forced")  # the events that are counted
ALARMS = {"lost", "forced", "abandoned"}  # the events of the whole store that are kept
FIELDS_PER_LOCK = 3  # in the hash of a minute, on average
VALUES_PER_SCRIPT = 150  # about 0.5 ms of the server's time

Field = tuple[str, str, str]  # name of the lock, kind of event or "events", number or lines of events


class HistoryEvent(NamedTuple):
    """An event of a lock in the history.

    ``at``: Unix time. ``kind``: ``"acquired"``, ``"released"``, ``"refused"``, ``"lost"``, ``"abandoned"`` or
    ``"forced"``. ``seconds``: the time held, for a release or a loss; otherwise the time waited. ``holder``: the holder
    as text, for a forced release the operator.
    """

    at: float
    kind: str
    name: str
    seconds: float
    reason: str
    holder: str


class MinuteStats(NamedTuple):
    """The events of one lock, or of all locks of a store, in one minute.

    ``start``: the Unix time at which the minute begins. ``acquired``, ``refused``, ``lost`` and ``forced`` (released by
    force): numbers of events. ``events``: the last events, the earliest first; for a store, only losses, forced
    releases and abandoned locks.
    """

    start: float
    acquired: int = 0
    refused: int = 0
    lost: int = 0
    forced: int = 0
    events: Sequence[HistoryEvent] = ()


def last_hour(backend: Any, name: str = "") -> list[MinuteStats]:
    """Return the events of the lock ``name`` in each of the last sixty minutes, the current minute last.

    ``name``: ``""`` means all locks of ``backend``. Returns an empty list if the backend keeps no history. Raises
    ``LockUnavailable``.
    """
    minutes: list[MinuteStats] = backend.drive(_read(backend, name)) if backend.history else []
    return minutes


def _read(backend: Any, name: str) -> Flow[list[MinuteStats]]:
    last = int(time.time() // 60)
    minutes = range(last - MINUTES + 1, last + 1)
    fields = json.dumps([f"{kind} {name}" for kind in (*COUNTED, "events")]).encode()
    answers: list[list[Any]] = []
    fault: Fault | None = None
    for node in range(len(backend.nodes)):
        reads = [EvalScript(script("history_read"), (_key(backend, each),), (fields,), node) for each in minutes]
        replies = yield Batch(reads, node)
        failed = next((reply for reply in replies if isinstance(reply, Fault)), None)
        answers += [] if failed else [replies]
        fault = failed or fault
    if fault and not answers:
        raise fault_error(name, fault)
    by_minute = zip(minutes, *answers, strict=True)
    return [parse_reply(name, _read_minute, replies, minute * 60.0) for minute, *replies in by_minute]


def _read_minute(replies: list[list[bytes | None]], start: float) -> MinuteStats:
    """Add up the replies of all nodes about one minute."""
    *counts, texts = zip(*replies, strict=True)
    lines = b"".join(text for text in texts if text).decode(errors="replace").split("\n")
    events = sorted(map(_read_event, filter(None, lines)))
    numbers = dict(zip(COUNTED, (sum(int(each or 0) for each in column) for column in counts), strict=True))
    return MinuteStats(start, **numbers, events=events)


def _read_event(line: str) -> HistoryEvent:
    at, kind, name, seconds, reason, holder = clean(json.loads(line))
    return HistoryEvent(at / 1e6, str(kind), str(name), float(seconds), str(reason), str(holder))


def _key(backend: Any, minute: int) -> bytes:
    return f"{backend.fixed_prefix}:history:{minute}".encode()


# ── writing ──────────────────────────────────────────────────────────────────────────────────

_counted: dict[tuple[Any, int], set[str]] = {}  # by backend and minute: the locks that this process counts by name


def write(records: Sequence[EventRecord]) -> None:
    """Add ``records`` to the history of their backends. A listener of the `EventQueue`."""
    by_minute: defaultdict[tuple[Any, int], list[EventRecord]] = defaultdict(list)
    for record in records:
        if record.backend is not None and record.backend.history:
            by_minute[record.backend, int(record.at // 60)].append(record)
    latest = max((minute for _, minute in by_minute), default=0)
    for over in [each for each in _counted if each[1] < latest - 1]:
        del _counted[over]
    for (backend, minute), part in by_minute.items():
        names = _counted.setdefault((backend, minute), set())
        try:
            add(backend, minute, list(_fields(part, names, backend.history)))
        except Exception as error:  # noqa: BLE001  (the failure of a store must not affect other stores)
            logger.debug("the history of %r was not written: %s", backend.alias, error)


def _fields(records: Sequence[EventRecord], names: set[str], most: int) -> Iterator[Field]:
    """Yield the hash fields of ``records``, which belong to one backend and minute.

    ``names``: the locks that have fields of their own. New locks are added until there are ``most``. Records of all
    other locks are counted only in the fields of the store.
    """
    counts: Counter[tuple[str, str]] = Counter()
    events: dict[str, deque[EventRecord]] = {"": deque(maxlen=MAX_EVENTS * 10)}
    for record in records:
        name, kind = record.name, record.kind
        counts["", kind] += 1
        if kind in ALARMS:
            events[""].append(record)
        if name not in names:
            if len(names) >= most:
                continue
            names.add(name)
        counts[name, kind] += 1
        if name not in events:
            events[name] = deque(maxlen=MAX_EVENTS)
        events[name].append(record)
    yield from ((name, "events", "".join(map(_line, kept))) for name, kept in events.items() if kept)
    yield from ((name, kind, str(number)) for (name, kind), number in counts.items() if kind in COUNTED)


def _line(record: EventRecord) -> str:
    seconds = record.held if record.kind in ("released", "lost") else record.waited
    holder, reason = _owner_text(record.holder), record.reason[:MAX_TEXT]
    return json.dumps([round(record.at * 1e6), record.kind, record.name, round(seconds, 3), reason, holder]) + "\n"


@lru_cache(maxsize=256)  # acquire and release have the same holder
def _owner_text(holder: str) -> str:
    return str(Owner.parse(holder))[:MAX_TEXT] if holder else ""


def add(backend: Any, minute: int, fields: Sequence[Field]) -> None:
    """Add ``fields`` to ``minute`` (minutes since the epoch) of ``backend``. Raises ``LockUnavailable``."""
    limits = b"%d" % TTL_MS, b"%d" % (backend.history * FIELDS_PER_LOCK), b"%d" % MAX_EVENTS
    for first in range(0, len(fields), VALUES_PER_SCRIPT):
        values = json.dumps([each for field in fields[first : first + VALUES_PER_SCRIPT] for each in field]).encode()
        call = EvalScript(script("history_add"), (_key(backend, minute),), (*limits, values))
        for node in range(len(backend.nodes)):
            reply = backend.drive(run_idempotent(call.at(node)))
            if not isinstance(reply, Fault):
                break
        else:
            raise fault_error("", reply)
