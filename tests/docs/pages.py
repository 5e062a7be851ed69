"""The documentation as data: its pages, the examples in them, and its tables of options."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.rst") if "_build" not in page.parts)

_DIRECTIVE = re.compile(r"( *)\.\. code-block:: (\w+)\n((?:\1   :.*\n)*)\n((?:\1   .*\n|[ ]*\n)+)")
_OPTION = re.compile(r":([\w-]+):[ ]*(.*)")
_PROMPT = re.compile(r"^( *)>>> .*\n(?:\1\S.*\n|\1 .*\n)*", re.MULTILINE)
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^   \* - ``(.+)``\n     - ``(.+)``", re.MULTILINE)


class Example(NamedTuple):
    """A piece of code in a page. `language` is that of its block, `pycon` for a dialogue with >>>."""

    language: str
    code: str
    line: int
    options: dict[str, str]


def examples(text: str) -> list[Example]:
    """Return the examples of a page in order."""
    return sorted([*_blocks(text), *_dialogues(text)], key=lambda example: example.line)


def _blocks(text: str) -> Iterator[Example]:
    for found in _DIRECTIVE.finditer(text):
        options = dict(_OPTION.findall(found[3]))
        yield Example(found[2], textwrap.dedent(found[4]), _line(text, found.start(4)), options)
    for found in _FENCE.finditer(text):
        yield Example(found[1], found[2], _line(text, found.start(2)), {})


def _dialogues(text: str) -> Iterator[Example]:
    for found in _PROMPT.finditer(text):
        yield Example("pycon", textwrap.dedent(found[0]), _line(text, found.start()), {})


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def options_table(page: Path, label: str) -> dict[str, str]:
    """Return option and default from the first table after `label`; empty without a table."""
    section = page.read_text().partition(f".. _{label}:\n")[2]
    assert section, f"{page.name} has no label {label}"
    return dict(_ROW.findall(re.split(r"^\.\. _", section, maxsplit=1, flags=re.MULTILINE)[0]))


def headings(page: Path) -> list[str]:
    """Return the sections of a page without its title."""
    return re.findall(r"^(.+)\n-{3,}$", page.read_text(), re.MULTILINE)
