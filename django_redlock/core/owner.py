"""Who holds a lock: written into its value, so that a person who looks at Redis, the admin or a command sees it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

from .callers import running_task


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
        """The owner in a lock's value; a text of another program's becomes the label."""
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        try:
            data = json.loads(text)
            known = {name: _KINDS[name](data.pop(name)) for name in tuple(data) if name in _KINDS}
        except (ValueError, TypeError, AttributeError, OverflowError):
            return cls(label=text)
        return cls(**known, extra=data)


_NUMBERS: dict[str, type[int | float]] = {"pid": int, "since": float, "ttl": float}
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


def _readable(owner: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it is. What is named like a number of ours takes its place, and so has to be one."""
    for name, kind in _NUMBERS.items():
        if name in owner:
            try:
                kind(owner[name])
            except (ValueError, TypeError, OverflowError):
                raise ValueError(
                    f"owner's {name!r} takes the place of ours, a number: {owner[name]!r} is none"
                ) from None
    return owner


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
        added = _readable(owner) if isinstance(owner, Mapping) else {"label": str(owner)}
        for key, value in added.items():
            text += f",{_quoted(str(key))}:{_written(value)}"
    return (text + "}").encode(errors="replace")
