"""The diagrams of the documentation: SVG that the build creates."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET

import pytest

from tests.docs.pages import DOCS, PAGES

pytest.importorskip("docutils", reason="the drawings are made by Sphinx: pip install django-redlock[dev]")

SVG = "{http://www.w3.org/2000/svg}"


def extension(name: str):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sequence():
    """The drawing has each participant, message and note, and replies are dashed."""
    lines = ["A, Redis", "A -> Redis: acquire <x>", "Redis --> A: granted", "note A, Redis: A works"]
    drawing = ET.fromstring(extension("sequence").draw(lines))  # noqa: S314  (our own)
    assert {"A", "Redis", "acquire <x>", "granted", "A works"} == {text.text for text in drawing.iter(f"{SVG}text")}
    assert sum("stroke-dasharray" in line.attrib for line in drawing.iter(f"{SVG}line")) == 1


@pytest.mark.parametrize("line", ["A => Redis: acquire", "A -> Nobody: acquire", "nothing"])
def test_sequence_that_is_wrong(line):
    """A line that can't be drawn raises an error."""
    with pytest.raises(ValueError, match=r"Nobody|neither a message nor a note"):
        extension("sequence").draw(["A, Redis", line])


def test_bars():
    """Bars are as long as their values, the longest as long as the chart."""
    module = extension("bars")
    drawing = ET.fromstring(module.draw("orders", {"one": 50, "two": 100}))  # noqa: S314  (our own)
    assert [float(bar.attrib["width"]) for bar in drawing.iter(f"{SVG}rect")] == [module.LENGTH / 2, module.LENGTH]


def test_no_page_needs_the_network():
    """No page loads a script to draw its diagrams."""
    assert [page.name for page in PAGES if ".. mermaid::" in page.read_text()] == []
