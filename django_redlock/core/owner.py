"""The owner of a lock: a description of the holder, stored as JSON in the lock's value.

The admin and the commands show the owner.
"""

from __future__ import annotations

import json
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from .process.caller import running_task


@dataclass(frozen=True, slots=True)
class Owner:
    """The description of a holder or waiter. A field that is unknown is empty or 0.

    ``thread``, ``task``: names of the thread and of the asyncio task. ``label``: the text of the option ``owner="…"``.
    ``since``: the Unix time of ``acquire()`` by the holder's clock. ``ttl``: seconds. ``extra``: the fields of the
    option ``owner={…}``, and facts about the lock: ``limit`` of a semaphore, ``mode`` of a read-write lock,
    ``max_hold`` (seconds).
    """

    host: str = ""
    pid: int = 0
    thread: str = ""
    task: str = ""
    since: float = 0.0
    ttl: float = 0.0
    label: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.host:
            return self.label or "unknown"
        what = f" {self.label}" if self.label else ""
        return f"{self.host}:{self.pid} {self.task or self.thread}{what}"

    @classmethod
    def parse(cls, text: str | bytes) -> Owner:
        """Parse the owner in a lock's value. If ``text`` is not an owner, its beginning becomes the label.

        Never raises. All text in the result can be encoded as UTF-8.
        """
        if isinstance(text, bytes):
            text = text[: MAX_OWNER_BYTES + 1].decode(errors="replace")
        if len(text) <= MAX_OWNER_BYTES:
            try:
                pairs = clean(json.loads(text), 1 + _DEEPEST).items()  # the owner, and the levels of a field
                known = {name: _KINDS[name](value) for name, value in pairs if name in _KINDS}
                if "pid" in known:
                    known.setdefault("thread", MAIN_THREAD)
                return cls(**known, extra={name: value for name, value in pairs if name not in known})
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                pass
        return cls(label=clean(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"))


Facts = tuple[tuple[str, Any], ...]  # names and values of fields

MAIN_THREAD = "MainThread"  # the thread of an owner that has a pid and no thread, which saves 22 of 81 bytes
MAX_OWNER_BYTES = 8192  # bytes of an owner as JSON
_SHOWN = 200  # characters shown of a text that is not an owner
_DEEPEST = 4  # levels of nested lists and mappings in a field


def clean(value: Any, levels: int = _DEEPEST) -> Any:
    """Return the JSON value ``value`` with its surrogates and NUL escaped, so that all text can be encoded and stored.

    Raises ``ValueError`` for numbers that are not finite, and for more than ``levels`` levels of lists and mappings.
    """
    if isinstance(value, str):
        if value.isascii() and "\0" not in value:
            return value
        return value.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    if isinstance(value, dict | list | tuple):
        if not levels:
            raise ValueError(f"more than {_DEEPEST} levels of lists and mappings")
        if isinstance(value, dict):
            return {clean(key): clean(each, levels - 1) for key, each in value.items()}
        return [clean(each, levels - 1) for each in value]
    return _finite(value) if isinstance(value, float) else value


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


_NUMBERS: dict[str, Callable[[Any], int | float]] = {"pid": int, "since": _finite, "ttl": _finite}
_KINDS: dict[str, Any] = dict.fromkeys((f.name for f in fields(Owner)), str) | _NUMBERS
del _KINDS["extra"]


_encode = json.JSONEncoder(separators=(",", ":"), default=str).encode


@lru_cache(maxsize=1024)
def _common_fields(pid: int, thread: str, ttl: float, more: Facts) -> str:
    """Return the fields that many locks of a thread have in common, as JSON without the closing brace."""
    fields: dict[str, Any] = {"host": socket.gethostname(), "pid": pid}
    fields |= ({"thread": thread} if thread != MAIN_THREAD else {}) | ({"ttl": ttl} if ttl else {})
    return _encode(fields | dict(more))[:-1]


def _readable(owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the option ``owner={…}`` as JSON values. Raises ``ValueError`` for invalid values.

    A field named ``pid``, ``since`` or ``ttl`` replaces the owner's own field, and must be a number.
    """
    fields: dict[str, Any] = {}
    for name, value in owner.items():
        try:
            fields[clean(str(name))] = clean(value)
            if name in _NUMBERS:
                _NUMBERS[name](value)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"owner's {name!r} can't be {value!r:.100}: {error}") from None
    return fields


def describe_owner(owner: str | Mapping[str, Any] | None = None, ttl: float = 0.0, more: Facts = ()) -> bytes:
    """Describe the running thread or asyncio task as JSON, with the current time as ``since``.

    ``owner``: a label (a text) or fields (a mapping) to add. ``ttl``: seconds; 0: unknown. ``more``: further fields.
    Raises ``ValueError`` for an ``owner`` that `Owner.parse` could not read.
    """
    text = f'{_common_fields(os.getpid(), threading.current_thread().name, ttl, more)},"since":{time.time():.3f}'
    if (task := running_task()) is not None:
        text += f',"task":{_encode(task.get_name())}'
    if owner is not None:
        if fields := _readable(owner if isinstance(owner, Mapping) else {"label": str(owner)}):
            text += f",{_encode(fields)[1:-1]}"
        if len(text) >= MAX_OWNER_BYTES:
            raise ValueError(f"owner has {len(text) + 1} bytes as JSON, and {MAX_OWNER_BYTES} at most can be read")
    return f"{text}}}".encode()
