"""Who holds a lock: written into its value, so that a person who looks at Redis, the admin or a command sees it."""

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
from json.encoder import encode_basestring_ascii
from typing import Any

from .context import running_task


@dataclass(frozen=True, slots=True)
class Owner:
    """The holder of a lock. ``since`` is Unix time by the holder's clock, ``ttl`` the lease that it asked for in
    seconds; ``extra`` is what ``owner={…}`` added.
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
        """The owner in a lock's value. The beginning of any other text becomes the label: another program wrote it.

        Never raises, and every text in the result can be encoded.
        """
        if isinstance(text, bytes):
            text = text[: LONGEST + 1].decode(errors="replace")
        if len(text) <= LONGEST:
            try:
                data = clean(json.loads(text))
                known = {name: _KINDS[name](data.pop(name)) for name in tuple(data) if name in _KINDS}
                return cls(**known, extra=data)
            except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
                pass
        return cls(label=clean(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"))


LONGEST = 8192  # bytes of an owner as JSON
_SHOWN = 200  # characters of a text that is no owner
_DEEPEST = 4  # levels of lists and mappings within each other


def clean(value: Any, levels: int = _DEEPEST) -> Any:
    """A JSON value in which every text can be encoded and stored: surrogates and NUL are written as escapes.

    Raises ``ValueError`` for numbers that are not finite, and for values that are nested too deeply.
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


@lru_cache(maxsize=1024)
def _quoted(text: str) -> str:
    return json.dumps(text)


def _written(value: Any) -> str:
    # Most values are texts; the way through json.dumps() takes ten times as long, for each task.
    return encode_basestring_ascii(value) if type(value) is str else json.dumps(value, default=str)


@lru_cache(maxsize=1024)
def _unchanging(pid: int, thread: str, ttl: float) -> str:
    lease = f',"ttl":{ttl:g}' if ttl else ""
    return f'{{"host":{_quoted(socket.gethostname())},"pid":{pid},"thread":{_quoted(thread)}{lease}'


def _thread_name() -> str:
    # `threading.current_thread()` would keep an entry for each thread that was not started through `threading`.
    thread = threading._active.get(threading.get_ident())  # type: ignore[attr-defined]
    return thread.name if thread is not None else "thread"


def _readable(owner: Mapping[str, Any]) -> dict[str, Any]:
    """The owner as `Owner.parse` can read it. A field named like a number of ours replaces it, so it must be one."""
    fields: dict[str, Any] = {}
    for name, value in owner.items():
        try:
            fields[clean(str(name))] = clean(value)
            if name in _NUMBERS:
                _NUMBERS[name](value)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"owner's {name!r} can't be {value!r:.100}: {error}") from None
    return fields


class Fields(str):
    """Fields to add to an owner, as JSON already, a comma before each."""

    __slots__ = ()

    @classmethod
    def of(cls, label: str, name: str, value: str) -> Fields:
        """The label, the same for many, and one more field."""
        return cls(f',"label":{_quoted(label)},"{name}":{encode_basestring_ascii(value)}')


def describe_owner(owner: str | Mapping[str, Any] | None = None, ttl: float = 0.0) -> bytes:
    """This thread or asyncio task, now, as JSON. ``owner`` adds a label (a text) or fields of one's own (a mapping).

    ``ttl``: the lease in seconds that it asks for. Raises ``ValueError`` for an ``owner`` that nobody could read.
    """
    text = f'{_unchanging(os.getpid(), _thread_name(), ttl)},"since":{time.time():.3f}'
    if (task := running_task()) is not None:
        text += f',"task":{_quoted(task.get_name())}'
    if type(owner) is Fields:
        text += owner
    elif owner is not None:
        for key, value in _readable(owner if isinstance(owner, Mapping) else {"label": str(owner)}).items():
            text += f",{_quoted(key)}:{_written(value)}"
        if len(text) >= LONGEST:
            raise ValueError(f"owner has {len(text) + 1} bytes as JSON, and {LONGEST} at most can be read")
    return (text + "}").encode(errors="replace")
