"""Locks, holders and servers in words for people, and in JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .core.lock_info import LockInfo
from .core.owner import Owner
from .history.counters import HistoryEvent


def duration(seconds: float) -> str:
    """``3 min 12 s``: the two largest units that say something; below ten seconds with one decimal."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    days, rest = divmod(round(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(index for index, (number, _) in enumerate(units) if number)
    return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2] if number)


def task_of(owner: Owner) -> str:
    """The name of the Celery task or, else, of the asyncio task that holds."""
    return owner.label if "task_id" in owner.extra else owner.task


_HEAD = {"node", "ok", "problems", "warnings", "run_id"}  # shown otherwise, or of no use to people
_SAID: dict[str, Callable[[Any], str]] = {
    "uptime": duration,
    "replica_lag": duration,
    "clock_difference": lambda seconds: f"{round(seconds * 1000):+} ms",
    "round_trip": lambda seconds: f"{seconds * 1000:.1f} ms",
    "armed": lambda armed: "yes" if armed else "no",
    "quarantine": lambda left: duration(left) if left else "none",
}


def facts(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a row of `health` says beside the node's name and its problems, label and value."""
    known = {name: value for name, value in node.items() if name not in _HEAD and value not in ("", None)}
    return [(name.replace("_", " "), _SAID.get(name, str)(value)) for name, value in known.items()]


def owners(held: LockInfo) -> Sequence[Owner]:
    """All who hold it."""
    return held.holders or (held.owner,)


def others(held: LockInfo) -> str:
    """How many hold it beside the first, where any do: ``and 2 more``."""
    return f"and {more} more" if (more := len(owners(held)) - 1) else ""


def age(owner: Owner) -> float | None:
    """Seconds since the owner called ``acquire()``, by the clocks of both machines; ``None`` if unknown."""
    return max(0.0, time.time() - owner.since) if owner.since else None


def event_text(event: HistoryEvent) -> str:
    """The rest of the sentence that begins with its kind."""
    who = f" by {event.holder}" if event.holder else ""
    words = {
        "acquired": f"{who} after {duration(event.seconds)}",
        "released": f"{who} after {duration(event.seconds)}",
        "refused": f"after {duration(event.seconds)}, {event.reason}{who}",
        "lost": f"{who} after {duration(event.seconds)}: {event.reason}",
        "forced": f"released{who}",
    }
    return words.get(event.kind, who).strip()


def as_dict(alias: str, held: LockInfo) -> dict[str, Any]:
    """A lock as JSON knows it. Times are seconds, ``since`` is Unix time."""
    owner = held.owner
    return {
        "alias": alias,
        "name": held.name,
        "kind": held.kind,
        "host": owner.host,
        "pid": owner.pid,
        "thread": owner.thread,
        "task": owner.task,
        "label": owner.label,
        "extra": dict(owner.extra),
        "since": held.since,
        "held": age(owner),
        "holders": list(map(str, owners(held))),
        "ttl": held.ttl,
        "remaining": held.remaining,
        "waiters": held.waiters,
        "nodes": list(held.nodes),
        "digest": held.digest,
    }
