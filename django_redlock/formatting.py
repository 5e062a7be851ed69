"""Formats locks, holders and servers as text for people and as values for JSON."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from django.utils.translation import gettext, gettext_lazy

from .core.lock_info import LockInfo
from .core.owner import Owner
from .core.primitives.base import KINDS
from .history import HistoryEvent

STATES = ("queued", "running", "done", "read", "write")
_SPACES = re.compile("^ +| +$")
LISTED_KINDS = (*KINDS, "task")  # of locks and of records in lists


def duration(seconds: float | None) -> str:
    """Return a duration as text in its largest unit and the next, such as ``3 min 12 s``. Zeros are left out.

    Durations below ten seconds have one decimal: ``4.2 s``. ``None`` becomes ``unknown``.
    """
    if seconds is None:
        return gettext("unknown")
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    days, rest = divmod(round(seconds), 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(index for index, (number, _) in enumerate(units) if number)
    return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2] if number)


def milliseconds(seconds: float) -> str:
    """Return a duration as text in milliseconds with one decimal, such as ``1.5 ms``."""
    return f"{seconds * 1000:.1f} ms"


def printable(value: object) -> str:
    """Return ``value`` as text. Control characters, invisible characters and spaces at both ends are escaped.

    Escaped characters have no effect in a terminal, and no name looks like another: U+202E, for example, reverses the
    text after it.
    """
    text = str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _SPACES.sub(lambda found: "\\x20" * len(found[0]), text)


def shortened(text: str, width: int) -> str:
    """Return ``text``, cut in the middle to at most ``width`` characters, because names differ most at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


# ── one lock ─────────────────────────────────────────────────────────────────────────────────


def printable_lock(held: LockInfo) -> LockInfo:
    """Return ``held`` with `printable` texts, except for its name, which is needed to find the lock."""
    printed: LockInfo = _printable_texts(held)
    return replace(printed, name=held.name)


def _printable_texts(value: Any) -> Any:
    if isinstance(value, LockInfo | Owner):
        return replace(value, **{each.name: _printable_texts(getattr(value, each.name)) for each in fields(value)})
    if isinstance(value, Mapping):  # the text of a nested list or mapping has its control characters escaped already
        return {printable(key): printable(each) if isinstance(each, str) else each for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_printable_texts, value))
    return printable(value) if isinstance(value, str) else value


def task_of(owner: Owner) -> str:
    """Return the name of the Celery or Django task in ``owner``, or of the asyncio task; ``""`` without a task."""
    return owner.label if "task_id" in owner.extra else owner.task


def state_of(owner: Owner) -> str:
    """Return the state of the holder ``owner``, which depends on the kind of lock.

    The lock of a Celery or Django task is ``queued`` or ``running``, a lock with ``every=`` is ``running`` or ``done``,
    and a read-write lock has the state ``read`` or ``write``. Returns ``""`` for any other lock.
    """
    state = owner.extra.get("state") or owner.extra.get("mode")
    return state if state in STATES else ""


def owners(held: LockInfo) -> Sequence[Owner]:
    """Return all holders of the lock."""
    return held.holders or (held.owner,)


def others(held: LockInfo) -> str:
    """Return the number of holders besides the first as text: ``and 2 more``, or ``""`` for a single holder."""
    more = len(owners(held)) - 1
    return gettext("and %(number)d more") % {"number": more} if more else ""


# By name of a filter, the values of a lock: several if its holders differ.
FILTERS: dict[str, Callable[[LockInfo], set[str]]] = {
    "kind": lambda held: {held.kind},
    "state": lambda held: set(map(state_of, owners(held))),
    "host": lambda held: {owner.host for owner in owners(held)},
    "task": lambda held: set(map(task_of, owners(held))),
}

# Fields of `Owner.extra` that are shown in a place of their own.
_OWN_PLACES = ("state", "mode", "limit", "max_hold", "every", "task_id")


def added_fields(owner: Owner) -> list[str]:
    """Return the fields that the option ``owner={…}`` has added, such as ``user=ada``."""
    return [f"{key}={value}" for key, value in owner.extra.items() if key not in _OWN_PLACES]


def age(owner: Owner) -> float | None:
    """Return the seconds since ``owner``, a holder or waiter, called ``acquire()``; ``None`` if unknown.

    The result is wrong by the difference between the clocks of the owner's machine and of this machine.
    """
    return max(0.0, time.time() - owner.since) if owner.since else None


def longest_wait(held: LockInfo) -> float | None:
    """Return the longest time, in seconds, that a waiter has waited; ``None`` without a waiter, or if unknown."""
    return max((waited for owner in held.queue if (waited := age(owner)) is not None), default=None)


def as_dict(alias: str, held: LockInfo) -> dict[str, Any]:
    """Return the lock ``held`` of the store ``alias`` as a dict for JSON.

    Times are seconds; ``since`` is the Unix time in `LockInfo.since`.
    """
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

_NOT_FACTS = {"node", "ok", "problems", "warnings", "run_id", "polls"}  # shown elsewhere, or useless to an operator
_FACTS: dict[str, Callable[[Any], str]] = {
    "uptime": duration,
    "replica_lag": duration,
    "clock_difference": lambda seconds: f"{round(seconds * 1000):+} ms",
    "round_trip": milliseconds,
    "armed": lambda armed: gettext("yes") if armed else gettext("no"),
    "quarantine": lambda left: duration(left) if left else gettext("none"),
}


def facts(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the details of a server in ``node``, each as a pair of texts for people: label and value.

    ``node``: one of the dicts that `health` returns. Details without a value are left out.
    """
    known = {name: value for name, value in node.items() if name not in _NOT_FACTS and value not in ("", None)}
    return [(name.replace("_", " "), _FACTS.get(name, str)(value)) for name, value in known.items()]


_EVENT_TEXTS = {
    "acquired": gettext_lazy("%(who)s after %(time)s"),
    "released": gettext_lazy("%(who)s after %(time)s"),
    "refused": gettext_lazy("after %(time)s, %(reason)s %(who)s"),
    "lost": gettext_lazy("%(who)s after %(time)s: %(reason)s"),
    "abandoned": gettext_lazy("%(who)s, which has ended"),
    "forced": gettext_lazy("released %(who)s"),
}


def event_text(event: HistoryEvent) -> str:
    """Return holder, duration and reason of an event as text, such as ``by host1 after 0.2 s``.

    The text follows the kind of the event, such as "released".
    """
    who = gettext("by %(holder)s") % {"holder": printable(event.holder)} if event.holder else ""
    words = {"who": who, "time": duration(event.seconds), "reason": event.reason}
    return (str(_EVENT_TEXTS.get(event.kind, "%(who)s")) % words).strip()
