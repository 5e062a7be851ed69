"""Loads the Lua scripts: each is read and hashed once, and its header says how many keys and arguments it has."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import NamedTuple

_NUMBERED = re.compile(r"(?<!\S)(\d+) ")
_USES = re.compile(r"^-- USES (\w+)$", re.MULTILINE)


class Script(NamedTuple):
    """One script. ``keys`` and ``args``: the numbers of KEYS and ARGV in its header."""

    name: str
    source: bytes
    sha: bytes
    keys: int
    args: int

    @classmethod
    def made(cls, name: str, source: bytes, keys: int, args: int) -> Script:
        """Hash ``source``. SHA-1 is the name of a script in Redis, not a safeguard."""
        return cls(name, source, sha1(source, usedforsecurity=False).hexdigest().encode(), keys, args)


def _count(source: str, word: str) -> int:
    line = next((line for line in source.splitlines() if line.startswith(f"-- {word} ")), "")
    return max(map(int, _NUMBERED.findall(line)), default=0)


@cache
def script(name: str) -> Script:
    """The script ``lua/<name>.lua``, behind the scripts named by its USES lines.

    Raises ``FileNotFoundError`` for an unknown name.
    """
    text = resources.files("django_redlock.core").joinpath("lua", f"{name}.lua").read_text("utf-8")
    source = b"".join(script(used).source for used in _USES.findall(text)) + text.encode()
    return Script.made(name, source, _count(text, "KEYS"), _count(text, "ARGV"))


def all_scripts() -> list[Script]:
    """Every script of the package."""
    folder = resources.files("django_redlock.core").joinpath("lua")
    return [script(name[:-4]) for name in sorted(entry.name for entry in folder.iterdir()) if name.endswith(".lua")]
