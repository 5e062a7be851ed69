"""The last hour of locks, minute by minute: how many were acquired, refused, lost, and how long it all took.

For a name and minute it is one text: counts, as ``a=12 r=1 w3=12 h9=11``, and below them the last events, one in a line
as JSON. Texts of several processes are put together by a script; see ``history_add.lua``.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from ..core.event_queue import EventRecord
from ..core.owner import Owner, clean

T = TypeVar("T")

MINUTES = 60
MAX_NAMES = 200  # that are counted one by one, of one store in one minute
MAX_EVENTS = 5  # that are kept of one name and minute
ALL_LOCKS = ""  # stands for all names of a store; no lock is called that
OTHER_LOCKS = "}"  # for those beyond `MAX_NAMES`; no lock is called that either
_TEXT = 160  # characters that are kept of a text
_UNIT = 0.0001  # seconds: the first bucket of a histogram has what took no longer,
_LAST = 56  # and the last what took more than 5 hours

_COUNTED = {"acquired": "a", "refused": "r", "lost": "l", "forced": "f"}
_ENDS = {"released", "lost"}  # of a hold


def check_history_option(option: int | bool) -> int:
    """The option ``history`` as a number of names. Raises ``TypeError`` and ``ValueError`` for what is none."""
    if not isinstance(option, int):
        raise TypeError(f"history is a number of names, True or False, not {option!r}")
    if option < 0:
        raise ValueError(f"history is 0 at least, not {option}")
    return MAX_NAMES * option if isinstance(option, bool) else option


# ── histograms: bucket n has what took at most 2^(n/2) times 0.1 ms ────────────────────────────────────


def upper_bound(bucket: int) -> float:
    """The longest duration in a bucket, in seconds."""
    return _UNIT * float(2 ** (bucket / 2))


_BOUNDS = [upper_bound(bucket) for bucket in range(_LAST)]


def bucket_of(seconds: float) -> int:
    """The bucket for a duration."""
    return bisect_left(_BOUNDS, seconds)


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """The duration below which ``share`` of all are, in seconds, at most a fifth off; ``None`` when there are none."""
    left = share * sum(histogram.values())
    for bucket in sorted(histogram):
        if left <= histogram[bucket]:
            low = upper_bound(bucket - 1) if bucket else 0.0
            return low + (upper_bound(bucket) - low) * left / histogram[bucket]
        left -= histogram[bucket]
    return None


# ── what is read ─────────────────────────────────────────────────────────────────────────────


class HistoryEvent(NamedTuple):
    """One event: when (Unix time), what, how many seconds it was waited for or held, why, and who is meant."""

    at: float
    kind: str
    seconds: float
    reason: str
    holder: str


class MinuteStats(NamedTuple):
    """One minute of a lock, or of a whole store. ``start`` is Unix time, ``waited`` and ``held`` are histograms.

    Unless ``complete``, there were more names in this minute than are counted one by one, and this may be among them.
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
    """What several stores have of one minute."""
    counts, lines = _parsed(texts)
    return MinuteStats(
        start,
        **{kind: counts[letter] for kind, letter in _COUNTED.items()},
        waited=_histogram("w", counts),
        held=_histogram("h", counts),
        events=tuple(map(_happened, lines)),
        complete=complete,
    )


def _happened(line: str) -> HistoryEvent:
    """Raises ``ValueError`` and ``TypeError`` for a line that `_event_line` did not write."""
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
    return counts, sorted(events)  # each begins with its time


def _histogram(letter: str, counts: Mapping[str, int]) -> dict[int, int]:
    return {int(name[1:]): number for name, number in counts.items() if name[0] == letter and name[1:]}


def minutes_until(now: float) -> range:
    """The numbers of the minutes of the last hour, the oldest first: each times 60 is its start as Unix time."""
    last = int(now // 60)
    return range(last - MINUTES + 1, last + 1)


# ── what is written ──────────────────────────────────────────────────────────────────────────


class MinuteCounter:
    """What one process has seen of one name in one minute."""

    __slots__ = ("counts", "events")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.events: deque[EventRecord] = deque(maxlen=MAX_EVENTS)

    def count(self, moment: EventRecord) -> None:
        """Count it."""
        kind = moment.kind
        if letter := _COUNTED.get(kind):
            self._add(letter, 1)
        if kind == "acquired":
            self._add(f"w{bucket_of(moment.waited)}", 1)
        elif kind in _ENDS:
            self._add(f"h{bucket_of(moment.held)}", 1)
        self.events.append(moment)

    def _add(self, name: str, number: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + number

    def merge(self, other: MinuteCounter) -> None:
        """Count what ``other`` has."""
        for name, number in other.counts.items():
            self._add(name, number)

    def text(self) -> str:
        """As it is kept."""
        return _encoded(self.counts, map(_event_line, self.events))


def merge_texts(texts: Iterable[str]) -> str:
    """What ``history_add.lua`` makes of texts, for stores without it."""
    counts, lines = _parsed(texts)
    return _encoded(counts, lines[-MAX_EVENTS:])


def _encoded(counts: Mapping[str, int], lines: Iterable[str]) -> str:
    return "\n".join([" ".join(f"{name}={number}" for name, number in counts.items()), *lines])


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@lru_cache(maxsize=256)  # both ends of a holding name the same
def _owner_text(holder: str) -> str:
    return str(Owner.parse(holder))[:_TEXT] if holder else ""


def _event_line(moment: EventRecord) -> str:
    seconds = moment.held if moment.kind in _ENDS else moment.waited
    return _encode(
        [round(moment.at * 1e6), moment.kind, round(seconds, 3), moment.reason[:_TEXT], _owner_text(moment.holder)]
    )


Minutes = dict[tuple[Any, int], T]  # of each backend


def count_by_minute(moments: Sequence[EventRecord], named: Minutes[set[str]]) -> Minutes[dict[str, MinuteCounter]]:
    """Moments by backend and minute, and there by name. Of one backend, names beyond its number are `OTHER_LOCKS`.

    ``named``: those that are counted one by one so far, to which it adds. Once they are as many as the store will keep,
    no text need be made, and sent, for each of many others.
    """
    found: Minutes[dict[str, MinuteCounter]] = {}
    for moment in moments:
        place, name = moment.backend, moment.name
        if place is None or not place.history:
            continue
        which = place, int(moment.at // 60)
        tallies = found.get(which)
        if tallies is None:
            tallies = found[which] = {ALL_LOCKS: MinuteCounter()}
        tally = tallies.get(name)
        if tally is None:
            names = named.setdefault(which, set())
            if len(names) < place.history:
                names.add(name)
            if name not in names:
                name = OTHER_LOCKS
            tally = tallies.get(name) or tallies.setdefault(name, MinuteCounter())
        tally.count(moment)
    for tallies in found.values():
        whole, *parts = tallies.values()
        for each in parts:
            whole.merge(each)
        if OTHER_LOCKS in tallies:
            tallies[OTHER_LOCKS].events.clear()  # they don't say of which name they are
    return found
