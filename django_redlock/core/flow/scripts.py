"""The Lua scripts: read once, hashed once, checked against their own headers."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import NamedTuple

_NUMBERED = re.compile(r"(?<!\S)(\d+) ")
_USES = re.compile(r"^-- USES (\w+)$", re.MULTILINE)


class Script(NamedTuple):
    """One operation. ``keys`` and ``args`` are the numbers of KEYS and ARGV that its header names."""

    name: str
    source: bytes
    sha: bytes
    keys: int
    args: int

    @classmethod
    def made(cls, name: str, source: bytes, keys: int, args: int) -> Script:
        """A script of this source, hashed. SHA-1 is Redis' name for a script, not a safeguard."""
        return cls(name, source, sha1(source, usedforsecurity=False).hexdigest().encode(), keys, args)


def _count(source: str, word: str) -> int:
    line = next((line for line in source.splitlines() if line.startswith(f"-- {word} ")), "")
    return max(map(int, _NUMBERED.findall(line)), default=0)


@cache
def script(name: str) -> Script:
    """The script ``lua/<name>.lua``, behind the functions that it says it USES.

    Raises ``FileNotFoundError`` for a name that has none.
    """
    text = resources.files("django_redlock.core").joinpath("lua", f"{name}.lua").read_text("utf-8")
    source = b"".join(script(used).source for used in _USES.findall(text)) + text.encode()
    return Script.made(name, source, _count(text, "KEYS"), _count(text, "ARGV"))


def all_scripts() -> list[Script]:
    """Every script of the package, read and hashed."""
    folder = resources.files("django_redlock.core").joinpath("lua")
    return [script(name[:-4]) for name in sorted(entry.name for entry in folder.iterdir()) if name.endswith(".lua")]
