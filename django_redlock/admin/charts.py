"""The data for the chart of the last hour. A template renders it as an SVG without script and style."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.translation import gettext

from ..history.minutes import COUNTED, MINUTES, MinuteStats

Bar = tuple[str, int, float, float]  # CSS class, x, y, height


class Chart(NamedTuple):
    """A chart of events by minute. A minute is 1 unit wide, an event 1 unit high.

    ``legend``: CSS class, number and label of each kind of event. ``words``: the legend as text. ``top``: the largest
    number of events in a minute. ``times``: the first, the middle and the last minute. ``columns``: for each minute
    with events its time, the numbers as text, and the bars.
    """

    legend: Sequence[tuple[str, int, str]]
    words: str
    top: int
    times: Sequence[str]
    columns: Sequence[tuple[str, str, Sequence[Bar]]]


def chart(minutes: Sequence[MinuteStats]) -> Chart | None:
    """Return a chart of the events in ``minutes``, the last sixty; ``None`` if there are no events."""
    if not any(map(_counts, minutes)):
        return None
    sums = {kind: sum(getattr(minute, kind) for minute in minutes) for kind in COUNTED}
    legend = [(kind, number, gettext(kind)) for kind, number in sums.items() if number or kind != "forced"]
    top = max(sum(_counts(minute).values()) for minute in minutes)
    times = [_clock(minutes[index]) for index in (0, MINUTES // 2, -1)]
    return Chart(legend, _words({kind: number for kind, number, _ in legend}), top, times, [*_columns(minutes, top)])


def _counts(minute: MinuteStats) -> dict[str, int]:
    return {kind: number for kind in COUNTED if (number := getattr(minute, kind))}


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {gettext(kind)}" for kind, number in counts.items())


def _columns(minutes: Sequence[MinuteStats], top: int) -> Iterator[tuple[str, str, Sequence[Bar]]]:
    for index, minute in enumerate(minutes):
        counts, bars, y = _counts(minute), [("hit", index, 0.0, float(top))], float(top)
        for kind, number in counts.items():
            height = max(number, top / 100)  # the smallest bar has a hundredth of the height
            y -= height
            bars.append((kind, index, y, height))
        if counts:
            yield _clock(minute), _words(counts), bars


def _clock(minute: MinuteStats) -> str:
    return f"{timezone.localtime(datetime.fromtimestamp(minute.start, UTC)):%H:%M}"
