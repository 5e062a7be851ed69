"""Counts of lock events by minute, and histograms of the times for which locks were waited for and held.

For each minute, the store keeps one text for each lock name. Its first line has the counts. An example is
``a=12 r=1 w3=12 h9=11``: 12 acquired, 1 refused (``l``: lost, ``f``: released by force), 12 waits in bucket 3 and 11
holds in bucket 9 of the histograms. Below are the last events, each a line of JSON. ``history_add.lua`` merges the
texts of several processes.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from ..core.owner import Owner, clean
from .event_queue import EventRecord

T = TypeVar("T")

MINUTES = 60
MAX_NAMES = 200  # lock names that have counts of their own in one minute, by default
MAX_EVENTS = 5  # events kept for a name in a minute
ALL_LOCKS = ""  # the counts of all names of a store; no lock has this name
OTHER_LOCKS = "}"  # the counts of names beyond `MAX_NAMES`; no lock has this name
MAX_TEXT = 160  # longest text in an event, in characters
_UNIT = 0.0001  # seconds: upper bound of a histogram's first bucket
_LAST = 56  # the last bucket: more than 5 hours

_COUNTED = {"acquired": "a", "refused": "r", "lost": "l", "forced": "f"}
_ENDS = {"released", "lost"}  # events that end a hold


def check_history_option(option: int | bool) -> int:
    """Check the backend's option ``history``. Returns how many lock names have counts of their own in one minute.

    ``option``: this number, ``True`` for `MAX_NAMES` or ``False`` for 0. Raises ``TypeError`` for other types and
    ``ValueError`` for negative numbers.
    """
    if not isinstance(option, int):
        raise TypeError(f"history must be a number of names, True or False, not {option!r}")
    if option < 0:
        raise ValueError(f"history must be at least 0, not {option}")
    return MAX_NAMES * option if isinstance(option, bool) else option


# ── histograms: the upper bound of bucket n is 2^(n/2) times 0.1 ms ────────────────────────────────────


def upper_bound(bucket: int) -> float:
    """Return the longest duration, in seconds, that a histogram's bucket counts. ``bucket``: the index, from 0."""
    return _UNIT * float(2 ** (bucket / 2))


_BOUNDS = [upper_bound(bucket) for bucket in range(_LAST)]


def bucket_of(seconds: float) -> int:
    """Return the index, starting at 0, of the histogram bucket that counts a duration of ``seconds``."""
    return bisect_left(_BOUNDS, seconds)


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """Return the quantile ``share`` (0 to 1) of a histogram in seconds; ``None`` for an empty histogram.

    ``histogram``: counts by bucket, such as ``waited`` and ``held`` of `MinuteStats`. The result is usually less than
    20 % off. If all durations in a bucket are nearly equal, it can be 41 % off, the width of a bucket.
    """
    left = share * sum(histogram.values())
    for bucket in sorted(histogram):
        if left <= histogram[bucket]:
            low = upper_bound(bucket - 1) if bucket else 0.0
            return low + (upper_bound(bucket) - low) * left / histogram[bucket]
        left -= histogram[bucket]
    return None


# ── reading ──────────────────────────────────────────────────────────────────────────────────


class HistoryEvent(NamedTuple):
    """An event of a lock in the history.

    ``at``: Unix time. ``kind``: ``"acquired"``, ``"released"``, ``"refused"``, ``"lost"`` or ``"forced"``. ``seconds``:
    the time held for a release or a loss, otherwise the time waited. ``holder``: the holder as text; for a forced
    release, the operator.
    """

    at: float
    kind: str
    seconds: float
    reason: str
    holder: str


class MinuteStats(NamedTuple):
    """The counts of one lock, or of all locks of a store, in one minute.

    ``start``: the Unix time at which the minute begins. ``waited`` and ``held``: histograms of the waiting and holding
    times, as counts by bucket. ``events``: the last events. ``complete``: ``False`` if the minute had more names than
    the store counts separately, so that counts of this lock may be missing.
    """

    start: float
    acquired: int = 0
    refused: int = 0
    lost: int = 0
    forced: int = 0
    waited: Mapping[int, int] = {}
    held: Mapping[int, int] = {}
    events: Sequence[HistoryEvent] = ()
    complete: bool = True


def read_minute(start: float, texts: Iterable[str], complete: bool = True) -> MinuteStats:
    """Return the merged counts of ``texts``, which belong to the minute that begins at ``start`` (Unix time).

    ``complete``: as in `MinuteStats`.
    """
    counts, lines = _parsed(texts)
    return MinuteStats(
        start,
        **{kind: counts[letter] for kind, letter in _COUNTED.items()},
        waited=_histogram("w", counts),
        held=_histogram("h", counts),
        events=tuple(map(_read_event, lines)),
        complete=complete,
    )


def without_forced(minutes: Iterable[MinuteStats]) -> list[MinuteStats]:
    """Return ``minutes`` without the losses that force releases have caused.

    For each force release, one loss in the same or the next two minutes is left out: the former holder reports a loss
    at its next renewal, up to a third of its ttl later. ``minutes``: successive minutes, the oldest first.
    """
    found: list[MinuteStats] = []
    expected: list[int] = []  # the minutes of force releases whose loss was not seen yet
    for number, minute in enumerate(minutes):
        expected = [each for each in expected if number - each <= 2] + [number] * minute.forced
        caused = min(len(expected), minute.lost)
        expected = expected[caused:]
        found.append(minute._replace(lost=minute.lost - caused))
    return found


def _read_event(line: str) -> HistoryEvent:
    """Parse a line that `_event_line` has written. Raises ``ValueError`` or ``TypeError`` for other lines."""
    at, kind, seconds, reason, holder = clean(json.loads(line))
    return HistoryEvent(at / 1e6, kind, float(seconds), reason, holder)


def _parsed(texts: Iterable[str]) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    events: list[str] = []
    for text in texts:
        head, *lines = text.split("\n")
        events += filter(None, lines)
        for part in head.split():
            name, _, number = part.partition("=")
            counts[name] += int(number)
    return counts, sorted(events)  # each line begins with the time of the event


def _histogram(letter: str, counts: Mapping[str, int]) -> dict[int, int]:
    return {int(name[1:]): number for name, number in counts.items() if name[0] == letter and name[1:]}


def minutes_until(now: float) -> range:
    """Return the sixty minutes that end with the minute of ``now`` (Unix time), as minutes since the epoch."""
    last = int(now // 60)
    return range(last - MINUTES + 1, last + 1)


# ── writing ──────────────────────────────────────────────────────────────────────────────────


class MinuteCounter:
    """The counts of one process for one name in one minute."""

    __slots__ = ("counts", "events")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.events: deque[EventRecord] = deque(maxlen=MAX_EVENTS)

    def count(self, record: EventRecord) -> None:
        """Count one event, and add it to the last events. Only the last `MAX_EVENTS` events are kept."""
        kind = record.kind
        if letter := _COUNTED.get(kind):
            self._add(letter, 1)
        if kind == "acquired":
            self._add(f"w{bucket_of(record.waited)}", 1)
        elif kind in _ENDS:
            self._add(f"h{bucket_of(record.held)}", 1)
        self.events.append(record)

    def _add(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def merge(self, other: MinuteCounter) -> None:
        """Add the counts of ``other``, but not its events."""
        for name, number in other.counts.items():
            self._add(name, number)

    def text(self) -> str:
        """Return the counts and the last events as a text for the store."""
        return _encoded(self.counts, map(_event_line, self.events))


def merge_texts(texts: Iterable[str]) -> str:
    """Merge ``texts`` about one name in one minute into one text, as ``history_add.lua`` does in Redis."""
    counts, lines = _parsed(texts)
    return _encoded(counts, lines[-MAX_EVENTS:])


def _encoded(counts: Mapping[str, int], lines: Iterable[str]) -> str:
    return "\n".join([" ".join(f"{name}={number}" for name, number in counts.items()), *lines])


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@lru_cache(maxsize=256)  # acquire and release have the same holder
def _owner_text(holder: str) -> str:
    return str(Owner.parse(holder))[:MAX_TEXT] if holder else ""


def _event_line(record: EventRecord) -> str:
    seconds = record.held if record.kind in _ENDS else record.waited
    return _encode(
        [round(record.at * 1e6), record.kind, round(seconds, 3), record.reason[:MAX_TEXT], _owner_text(record.holder)]
    )


Minutes = dict[tuple[Any, int], T]  # by backend and minute (minutes since the epoch)


def count_by_minute(records: Sequence[EventRecord], named: Minutes[set[str]]) -> Minutes[dict[str, MinuteCounter]]:
    """Count ``records``. Returns a dict of counters by lock name for each backend and minute.

    ``named``: for each backend and minute, the set of lock names that have counters of their own. This function adds
    new names to these sets. Names beyond the backend's limit share the counter `OTHER_LOCKS`, because the store would
    not keep their counts. The counter `ALL_LOCKS` has the sums.
    """
    found: Minutes[dict[str, MinuteCounter]] = {}
    for record in records:
        backend, name = record.backend, record.name
        if backend is None or not backend.history:
            continue
        key = backend, int(record.at // 60)
        counters = found.get(key)
        if counters is None:
            counters = found[key] = {ALL_LOCKS: MinuteCounter()}
        counter = counters.get(name)
        if counter is None:
            names = named.setdefault(key, set())
            if len(names) < backend.history:
                names.add(name)
            if name not in names:
                name = OTHER_LOCKS
            counter = counters.get(name) or counters.setdefault(name, MinuteCounter())
        counter.count(record)
    for counters in found.values():
        whole, *parts = counters.values()
        for each in parts:
            whole.merge(each)
        if OTHER_LOCKS in counters:
            counters[OTHER_LOCKS].events.clear()  # an event does not contain the name of its lock
    return found
