"""Loads the Lua scripts. Each script is read and hashed once, and begins with a numbered list of its KEYS and ARGV."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib import resources
from typing import NamedTuple

_USES = re.compile(r"^ *-- USES (\w+)$", re.MULTILINE)


class Script(NamedTuple):
    """A Lua script. ``sha``: SHA-1 of its source in hex, by which EVALSHA finds a script on a server."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def made(cls, name: str, source: bytes) -> Script:
        """Return a `Script` with the SHA-1 of ``source``."""
        return cls(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())


@cache
def script(name: str) -> Script:
    """Return the script ``lua/<name>.lua``. A line ``-- USES other`` is replaced by the script ``other``.

    Raises ``FileNotFoundError`` for an unknown name.
    """
    text = resources.files("django_redlock.core").joinpath("lua", f"{name}.lua").read_text("utf-8")
    source = _USES.sub(lambda line: script(line[1]).source.decode().rstrip(), text)
    return Script.made(name, source.encode())


def all_scripts() -> list[Script]:
    """Return every Lua script of the package."""
    folder = resources.files("django_redlock.core").joinpath("lua")
    return [script(name[:-4]) for name in sorted(entry.name for entry in folder.iterdir()) if name.endswith(".lua")]
