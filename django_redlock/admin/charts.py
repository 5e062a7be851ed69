"""Draws the events of the last hour as an SVG chart. It contains no script and no style; a style sheet colours it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from ..history.minutes import COUNTED, MINUTES, MinuteStats


class Chart(NamedTuple):
    """A chart: the SVG, and a legend. Each entry of the legend is a CSS class, a number and a label."""

    picture: SafeString
    legend: Sequence[tuple[str, int, str]]


def chart(minutes: Sequence[MinuteStats]) -> Chart | None:
    """Return a chart of the numbers of events in ``minutes``, the last sixty; ``None`` if there are none."""
    if not any(map(_counts, minutes)):
        return None
    sums = {kind: sum(getattr(minute, kind) for minute in minutes) for kind in COUNTED}
    legend = [(kind, number, gettext(kind)) for kind, number in sums.items() if number or kind != "forced"]
    words = ", ".join(f"{number} {label}" for _, number, label in legend)
    top = max(sum(_counts(minute).values()) for minute in minutes)
    # In the inner picture a minute is 1 wide and an event 1 high.
    picture = format_html(
        '<svg class="redlock-plot" viewBox="0 0 600 140" role="img" aria-label="{}">'
        '<line x1="40" x2="600" y1="10" y2="10"/><line x1="40" x2="600" y1="120" y2="120"/>'
        '<text x="35" y="14" text-anchor="end">{}</text><text x="35" y="124" text-anchor="end">0</text>{}'
        '<svg x="40" y="10" width="560" height="110" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg></svg>',
        gettext("The last hour: %(numbers)s") % {"numbers": words},
        f"{top:,}",
        format_html_join(
            "",
            '<text x="{}" y="136" text-anchor="{}">{}</text>',
            [
                (40, "start", _clock(minutes[0])),
                (320, "middle", _clock(minutes[MINUTES // 2])),
                (600, "end", _clock(minutes[-1])),
            ],
        ),
        MINUTES,
        top,
        format_html_join("", "<g><title>{}: {}</title>{}</g>", _columns(minutes, top)),
    )
    return Chart(picture, legend)


def _counts(minute: MinuteStats) -> dict[str, int]:
    return {kind: number for kind in COUNTED if (number := getattr(minute, kind))}


def _columns(minutes: Sequence[MinuteStats], top: int) -> Iterator[tuple[str, str, SafeString]]:
    """Yield time, numbers and bars of each minute with events. The smallest bar has a hundredth of the height."""
    for index, minute in enumerate(minutes):
        counts, bars, y = _counts(minute), [("hit", index, 0.0, float(top))], float(top)
        for kind, number in counts.items():
            height = max(number, top / 100)
            y -= height
            bars.append((kind, index, y, height))
        if counts:
            words = ", ".join(f"{number} {gettext(kind)}" for kind, number in counts.items())
            rect = '<rect class="{}" x="{}" y="{}" width="0.9" height="{}"/>'
            yield _clock(minute), words, format_html_join("", rect, bars)


def _clock(minute: MinuteStats) -> str:
    return f"{timezone.localtime(datetime.fromtimestamp(minute.start, UTC)):%H:%M}"
