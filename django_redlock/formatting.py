"""Formats locks, holders and servers as text for people and as values for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .core.lock_info import LockInfo
from .core.owner import Owner
from .history.counters import HistoryEvent

STATES = ("queued", "running", "done", "read", "write")
KINDS = ("mutex", "rlock", "semaphore", "rwlock", "striped", "multilock", "task")


def duration(seconds: float) -> str:
    """Return text such as ``3 min 12 s``: the largest unit and the next, without zeros; ``4.2 s`` below ten seconds."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    days, rest = divmod(round(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(index for index, (number, _) in enumerate(units) if number)
    return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2] if number)


def shortened(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters. The middle is left out, because names differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


# ── one lock ─────────────────────────────────────────────────────────────────────────────────


def task_of(owner: Owner) -> str:
    """Return the name of the Celery task that holds the lock or, without a Celery task, of the asyncio task."""
    return owner.label if "task_id" in owner.extra else owner.task


def state_of(owner: Owner) -> str:
    """Return ``queued`` or ``running`` for a task, ``running`` or ``done`` for work that starts once in a period.

    For a read-write lock it is ``read`` or ``write``, else ``""``.
    """
    state = owner.extra.get("state") or owner.extra.get("mode")
    return state if state in STATES else ""


def owners(held: LockInfo) -> Sequence[Owner]:
    """Return all holders of the lock."""
    return held.holders or (held.owner,)


def others(held: LockInfo) -> str:
    """Return the number of holders besides the first as text: ``and 2 more``, or ``""`` for a single holder."""
    return f"and {more} more" if (more := len(owners(held)) - 1) else ""


def age(owner: Owner) -> float | None:
    """Return the seconds since ``owner``, a holder or waiter, called ``acquire()``; ``None`` if unknown.

    The result depends on the clocks of two machines: of the owner and of this process.
    """
    return max(0.0, time.time() - owner.since) if owner.since else None


def longest_wait(held: LockInfo) -> float | None:
    """Return the longest time, in seconds, that a waiter has waited; ``None`` without a waiter, or if unknown."""
    return max((waited for owner in held.queue if (waited := age(owner)) is not None), default=None)


def by_trouble(held: LockInfo) -> tuple[float, ...]:
    """Return a sort key: most waiters first, then the longest wait, then the longest hold."""
    forever = float("inf")
    return -held.waiters, min((owner.since or forever for owner in held.queue), default=0.0), held.since or forever


def ends_soon(held: LockInfo) -> bool:
    """Whether less than a third of the lease is left: a renewal is overdue, or the lease is not renewed."""
    return held.remaining is not None and held.ttl is not None and held.remaining < held.ttl / 3


def as_dict(alias: str, held: LockInfo) -> dict[str, Any]:
    """Return a lock as a dict for JSON and CSV. Times are seconds; ``since`` is Unix time."""
    owner = held.owner
    return {
        "alias": alias,
        "name": held.name,
        "kind": held.kind,
        "state": state_of(owner),
        "host": owner.host,
        "pid": owner.pid,
        "thread": owner.thread,
        "task": task_of(owner),
        "label": owner.label,
        "extra": dict(owner.extra),
        "holders": list(map(str, owners(held))),
        "since": held.since,
        "held": _rounded(age(owner)),
        "ttl": _rounded(held.ttl),
        "remaining": _rounded(held.remaining),
        "waiters": held.waiters,
        "longest_wait": _rounded(longest_wait(held)),
        "nodes": list(held.nodes),
        "digest": held.digest,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# ── servers and events ───────────────────────────────────────────────────────────────────────

_NOT_FACTS = {"node", "ok", "problems", "warnings", "run_id"}  # shown elsewhere, or useless to an operator
_FACTS: dict[str, Callable[[Any], str]] = {
    "uptime": duration,
    "replica_lag": duration,
    "clock_difference": lambda seconds: f"{round(seconds * 1000):+} ms",
    "round_trip": lambda seconds: f"{seconds * 1000:.1f} ms",
    "armed": lambda armed: "yes" if armed else "no",
    "quarantine": lambda left: duration(left) if left else "none",
}


def facts(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return label and value of each fact in ``node``, a row of `health`."""
    known = {name: value for name, value in node.items() if name not in _NOT_FACTS and value not in ("", None)}
    return [(name.replace("_", " "), _FACTS.get(name, str)(value)) for name, value in known.items()]


def event_text(event: HistoryEvent) -> str:
    """Return the text after the kind of an event, such as ``by host1 after 0.2 s``."""
    who = f" by {event.holder}" if event.holder else ""
    words = {
        "acquired": f"{who} after {duration(event.seconds)}",
        "released": f"{who} after {duration(event.seconds)}",
        "refused": f"after {duration(event.seconds)}, {event.reason}{who}",
        "lost": f"{who} after {duration(event.seconds)}: {event.reason}",
        "forced": f"released{who}",
    }
    return words.get(event.kind, who).strip()
