"""Bar charts as inline SVG, drawn when the documentation is built.

.. code-block:: text

   .. bars:: Orders per second

      one way: 34
      another way: 614
"""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

NAMES, LENGTH, NUMBERS, ROW = 190, 360, 70, 26  # pixels


def draw(title: str, values: dict[str, float]) -> str:
    """The chart as an ``<svg>`` element; the longest bar is as wide as the chart."""
    longest = max(values.values())
    rows = []
    for index, (name, value) in enumerate(values.items()):
        y, length = index * ROW + 28, max(1.0, value / longest * LENGTH)
        rows.append(f'<text x="{NAMES - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        rows.append(f'<rect x="{NAMES}" y="{y}" width="{length:.1f}" height="18" opacity="0.7"/>')
        rows.append(f'<text x="{NAMES + length + 6:.1f}" y="{y + 13}">{value:g}</text>')
    width, height = NAMES + LENGTH + NUMBERS, len(values) * ROW + 32
    said = escape(f"{title}: " + ", ".join(f"{name} {value:g}" for name, value in values.items()), quote=True)
    drawn = "\n".join([f'<text x="{NAMES}" y="16" font-weight="bold">{escape(title)}</text>', *rows])
    return (
        f'<svg role="img" aria-label="{said}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' style="max-width: {width}px; width: 100%" fill="currentColor" font-family="sans-serif" font-size="13">\n'
        f"{drawn}\n</svg>"
    )


class Bars(Directive):
    """``.. bars:: TITLE``: an SVG in HTML, its own source elsewhere."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        pairs = [line.rsplit(":", 1) for line in self.content if line.strip()]
        try:
            values = {name.strip(): float(value) for name, value in pairs}
        except ValueError as error:
            raise self.error(f"each line must be `name: number`: {error}") from error
        if self.state.document.settings.env.app.builder.format == "html":
            return [nodes.raw("", f"<p>{draw(self.arguments[0], values)}</p>", format="html")]
        source = "\n".join([self.arguments[0], *self.content])
        return [nodes.literal_block(source, source)]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("bars", Bars)
    return {"parallel_read_safe": True}
