"""Sequence diagrams as inline SVG, drawn when the documentation is built: no network and no script in the browser.

.. code-block:: text

   .. sequence::

      A, Redis
      A -> Redis: request
      Redis --> A: reply, dashed
      note A, Redis: a remark over both columns
"""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

from docutils import nodes
from docutils.parsers.rst import Directive

CHARACTER = 6.6  # width of a character in pixels, at a font size of 12
LINE = 16  # height of a line of text
STEP = 38  # from one message to the next
MARGIN = 12
LONGEST = 38  # characters in a line of a note

_STEP = re.compile(r"(?P<source>\S.*?) (?P<arrow>--?>) (?P<target>\S.*?): (?P<text>.*)")
_NOTE = re.compile(r"note (?P<names>[^:]+): (?P<text>.*)")


class Message(NamedTuple):
    source: int
    target: int
    text: str
    dashed: bool


class Note(NamedTuple):
    first: int
    last: int
    lines: list[str]


def parse(lines: list[str]) -> tuple[list[str], list[Message | Note]]:
    """The participants and the steps. Raises `ValueError` for a line that is neither message nor note."""
    heading, *rest = [line.strip() for line in lines if line.strip()]
    names = [name.strip() for name in heading.split(",")]
    steps: list[Message | Note] = []
    for line in rest:
        if found := _NOTE.fullmatch(line):
            columns = [names.index(name.strip()) for name in found["names"].split(",")]
            steps.append(Note(min(columns), max(columns), wrap(found["text"])))
        elif found := _STEP.fullmatch(line):
            ends = names.index(found["source"]), names.index(found["target"])
            steps.append(Message(*ends, found["text"], found["arrow"] == "-->"))
        else:
            raise ValueError(f"neither a message nor a note: {line!r}")
    return names, steps


def wrap(text: str) -> list[str]:
    """The text in lines of about `LONGEST` characters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= LONGEST:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def width_of(text: str) -> float:
    return len(text) * CHARACTER + 2 * MARGIN


def columns(names: list[str], steps: list[Message | Note]) -> list[float]:
    """The middle of each participant's column: as far apart as the widest text between two of them needs."""
    gaps = [max(90.0, (width_of(a) + width_of(b)) / 2 + MARGIN) for a, b in pairwise(names)]
    for step in steps:
        if isinstance(step, Message):
            first, last, need = min(step[:2]), max(step[:2]), width_of(step.text)
        else:
            first, last, need = step.first, step.last, max(map(width_of, step.lines)) - 60
        if missing := max(0.0, need - sum(gaps[first:last])):
            for index in range(first, last):
                gaps[index] += missing / (last - first)
    reach = max((max(map(width_of, s.lines)) / 2 for s in steps if isinstance(s, Note) and s.last == 0), default=0)
    places = [max(width_of(names[0]) / 2, reach, 30) + MARGIN]
    for gap in gaps:
        places.append(places[-1] + gap)
    return places


def draw(lines: list[str]) -> str:
    """The diagram as an ``<svg>`` element in the colour of the text around it."""
    names, steps = parse(lines)
    x = columns(names, steps)
    y, parts = 40.0 + STEP, []
    right = x[-1] + width_of(names[-1]) / 2
    for step in steps:
        if isinstance(step, Message):
            start, end = x[step.source], x[step.target]
            dash = ' stroke-dasharray="5 4"' if step.dashed else ""
            head = -7 if end > start else 7
            parts.append(f'<line x1="{start:.0f}" y1="{y:.0f}" x2="{end:.0f}" y2="{y:.0f}"{dash}/>')
            parts.append(f'<path d="M{end:.0f} {y:.0f}l{head} -4v8z" fill="currentColor"/>')
            parts.append(label((start + end) / 2, y - 6, step.text))
            y += STEP
        else:
            middle = (x[step.first] + x[step.last]) / 2
            width = max(*map(width_of, step.lines), x[step.last] - x[step.first] + 60)
            height = len(step.lines) * LINE + 10
            top = y - 20
            parts.append(
                f'<rect x="{middle - width / 2:.0f}" y="{top:.0f}" width="{width:.0f}" height="{height}" rx="4"'
                ' style="fill: var(--color-background-secondary, #eee)"/>'
            )
            parts.extend(label(middle, top + 17 + LINE * row, text) for row, text in enumerate(step.lines))
            right = max(right, middle + width / 2)
            y = top + height + STEP
    lifelines = [f'<line x1="{at:.0f}" y1="36" x2="{at:.0f}" y2="{y - 14:.0f}" opacity="0.35"/>' for at in x]
    heads = []
    for name, at in zip(names, x, strict=True):
        width = width_of(name)
        heads.append(f'<rect x="{at - width / 2:.0f}" y="8" width="{width:.0f}" height="28" rx="4" fill="none"/>')
        heads.append(label(at, 26, name, ' font-weight="bold"'))
    size = f'viewBox="0 0 {right + MARGIN:.0f} {y:.0f}" style="max-width: {right + MARGIN:.0f}px; width: 100%"'
    title = escape("; ".join(line.strip() for line in lines[1:] if line.strip()), quote=True)
    drawn = "\n".join([*lifelines, *heads, *parts])
    return (
        f'<svg class="sequence" role="img" aria-label="{title}" xmlns="http://www.w3.org/2000/svg" {size}'
        f' fill="none" stroke="currentColor" font-family="sans-serif" font-size="12">\n{drawn}\n</svg>'
    )


def label(x: float, y: float, text: str, more: str = "") -> str:
    where = f'x="{x:.0f}" y="{y:.0f}" text-anchor="middle"'
    return f'<text {where} fill="currentColor" stroke="none"{more}>{escape(text)}</text>'


class Sequence(Directive):
    """``.. sequence::``: an SVG in HTML, its own source elsewhere."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        try:
            drawing = draw(list(self.content))
        except ValueError as error:
            raise self.error(str(error)) from error
        source = "\n".join(self.content)
        if self.state.document.settings.env.app.builder.format == "html":
            return [nodes.raw("", f"<p>{drawing}</p>", format="html")]
        return [nodes.literal_block(source, source)]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("sequence", Sequence)
    return {"parallel_read_safe": True}
