"""Draws the events of the last hour as SVG charts. They contain no script and no style; a style sheet colours them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from ..history.minute_stats import MinuteStats, bucket_of, quantile

WIDTH, HEIGHT = 300, 132
LEFT, TOP, BOTTOM = 40, 8, 18  # margins for the labels
FLOOR = HEIGHT - BOTTOM
STEP = (WIDTH - LEFT) / 60
COUNTS = ("acquired", "refused", "lost", "forced")


class Chart(NamedTuple):
    """A chart: heading, SVG and legend. Each entry of the legend is a CSS class, a number and a label."""

    heading: str
    picture: SafeString
    legend: Sequence[tuple[str, str, str]]


class ChartBar(NamedTuple):
    """A part of a column, from ``low`` to ``high`` on the chart's scale of events or seconds. ``kind``: a CSS class."""

    kind: str
    low: float
    high: float


class ChartColumn(NamedTuple):
    """The column of one minute: its place from the left (0 to 59), its bars, and the text of its tooltip."""

    place: int
    bars: Sequence[ChartBar]
    words: str


def charts(minutes: Sequence[MinuteStats], number: int = 0, held: Sequence[float] = ()) -> list[Chart]:
    """Return three charts: the numbers of events, the waiting times and the hold times. ``[]`` without any event.

    ``minutes``: the counts of the last 60 minutes. ``number``: makes the ids of the charts unique on a page. ``held``:
    the seconds since ``acquire()`` of each holder of the lock, if the charts are about one lock. They are added to the
    hold times of the last minute.
    """
    if held and minutes:
        last = minutes[-1]
        minutes = [*minutes[:-1], last._replace(held=Counter(last.held) + Counter(map(bucket_of, held)))]
    if not any(any(minute[1:-1]) for minute in minutes):
        return []
    return [
        _counts(minutes, f"redlock-{number}-counts"),
        _times(gettext("Waited"), [minute.waited for minute in minutes], minutes, f"redlock-{number}-waited"),
        _times(gettext("Held"), [minute.held for minute in minutes], minutes, f"redlock-{number}-held"),
    ]


def _counts(minutes: Sequence[MinuteStats], name: str) -> Chart:
    columns = []
    for index, minute in enumerate(minutes):
        numbers = [(kind, getattr(minute, kind)) for kind in COUNTS]
        bars, sum_ = [], 0
        for kind, number in numbers:
            bars += [ChartBar(kind, sum_, sum_ + number)] if number else []
            sum_ += number
        if bars:
            columns.append(
                ChartColumn(index, bars, ", ".join(f"{number} {gettext(kind)}" for kind, number in numbers if number))
            )
    totals = [(kind, sum(getattr(minute, kind) for minute in minutes)) for kind in COUNTS]
    legend = [(kind, f"{total:,}", gettext(kind)) for kind, total in totals if total or kind in COUNTS[:3]]
    heading = gettext("Acquired, refused, lost")
    return Chart(heading, _picture(heading, name, columns, minutes, _count, legend), legend)


def _times(heading: str, histograms: Sequence[Mapping[int, int]], minutes: Sequence[MinuteStats], name: str) -> Chart:
    columns = []
    whole: Counter[int] = Counter()
    for index, histogram in enumerate(histograms):
        whole.update(histogram)
        half, most = quantile(histogram, 0.5), quantile(histogram, 0.95)
        if half is not None and most is not None:
            bars = [ChartBar("p50", 0, half), ChartBar("p95", half, most)]
            columns.append(ChartColumn(index, bars, f"p50 {short(half)}, p95 {short(most)}"))
    legend = [
        (kind, short(time) if (time := quantile(whole, share)) is not None else "-", kind)
        for kind, share in [("p50", 0.5), ("p95", 0.95)]
    ]
    return Chart(heading, _picture(heading, name, columns, minutes, short, legend), legend)


# ── drawing ──────────────────────────────────────────────────────────────────────────────────


def _picture(
    heading: str,
    name: str,
    columns: Sequence[ChartColumn],
    minutes: Sequence[MinuteStats],
    say: Callable[[float], str],
    legend: Iterable[tuple[str, str, str]],
) -> SafeString:
    top = round_up(max((bar.high for column in columns for bar in column.bars), default=0) or 1)
    height = (FLOOR - TOP) / top
    numbers = ", ".join(f"{number} {words}" for _, number, words in legend)
    marks = [top] if say is _count and top % 2 else [top, top / 2]
    return format_html(
        '<svg class="redlock-plot" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-desc">'
        '<desc id="{}-desc">{}</desc>{}{}{}{}</svg>',
        *(
            WIDTH,
            HEIGHT,
            name,
            name,
            gettext("%(chart)s, the last hour: %(numbers)s") % {"chart": heading, "numbers": numbers},
        ),
        format_html_join("", '<rect class="unknown" x="{}" y="{}" width="{}" height="{}"/>', _unknown(minutes)),
        format_html_join(
            "",
            '<line x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" text-anchor="end">{}</text>',
            (
                (LEFT, WIDTH, _number(y), _number(y), LEFT - 5, _number(y + 3), said)
                for said, y in [*((say(mark), FLOOR - mark * height) for mark in marks), ("0", FLOOR)]
            ),
        ),
        format_html_join(
            "",
            '<text x="{}" y="{}" text-anchor="{}">{}</text>',
            (
                (_number(LEFT + index * STEP), HEIGHT - 5, anchor, _clock(minutes[min(index, 59)].start))
                for index, anchor in [(0, "start"), (30, "middle"), (60, "end")]
            ),
        ),
        format_html_join("", "<g>{}</g>", ((_column(column, minutes, height),) for column in columns)),
    )


def _column(column: ChartColumn, minutes: Sequence[MinuteStats], height: float) -> SafeString:
    x, width = _number(LEFT + column.place * STEP + 0.5), _number(STEP - 1)
    bars = (
        (bar.kind, x, _number(min(FLOOR - 1, FLOOR - bar.high * height)), width, _number(max(1.0, tall)))
        for bar in column.bars
        if (tall := (bar.high - bar.low) * height) > 0
    )
    return format_html(
        '<title>{}: {}</title><rect class="hit" x="{}" y="{}" width="{}" height="{}"/>{}',
        *(_clock(minutes[column.place].start), column.words, x, TOP, width, FLOOR - TOP),
        format_html_join("", '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>', bars),
    )


def _unknown(minutes: Sequence[MinuteStats]) -> Iterable[tuple[str, int, str, int]]:
    """Yield x, y, width and height of a rectangle for each minute with incomplete counts (see `MinuteStats`)."""
    for index, minute in enumerate(minutes):
        if not minute.complete:
            yield _number(LEFT + index * STEP), TOP, _number(STEP), FLOOR - TOP


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _clock(start: float) -> str:
    return f"{timezone.localtime(datetime.fromtimestamp(start, UTC)):%H:%M}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number < 10_000 else f"{number / 1000:,.0f}k"


def short(seconds: float) -> str:
    """Format seconds in few characters, such as ``1.2 ms``."""
    size, unit = next(each[1:] for each in _UNITS if seconds >= each[0])
    value = seconds / size
    return f"{value:.2g} {unit}" if value < 100 else f"{value:.0f} {unit}"


# Each entry: the least number of seconds for which the unit is used, the length of the unit in seconds, and its name.
_UNITS = [(7200, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0.0009995, 0.001, "ms"), (0, 1e-6, "µs")]


def round_up(value: float) -> float:
    """Round up to a number that is easy to read, and whose half is easy to read too: 1, 2, 3, 4, 6, 8, 10, 20, …"""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 3, 4, 6, 8, 10) if value <= step * power * (1 + 1e-9))
