"""What the admin and the commands read instead of a table.

The stores are asked one by one: one that is down says so on its own line, and the others still answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from django.core.exceptions import FieldError

from .backends.looking import asked_one_by_one
from .core.events import logger
from .core.held import Held, Tenure
from .core.history import Happened, Minute
from .core.keys import glob_escape
from .core.owner import Owner
from .errors import LockError
from .handler import locks
from .models import HeldLock, make_pk, parse_pk

# ── asking the stores ────────────────────────────────────────────────────────────────────────


class Seen(NamedTuple):
    """What one store said. ``error`` is empty, or why it could not be asked; unless ``complete`` there is more."""

    alias: str
    locks: Sequence[Held] = ()
    scanned: int = 0
    complete: bool = True
    error: str = ""


def look(alias: str, pattern: str = "*", limit: int | None = None, max_keys: int | None = None) -> Seen:
    """The live locks of one store: ``limit`` at most, among about ``max_keys`` keys. Never raises."""
    try:
        return Seen(alias, *locks[alias].listing(pattern, limit, max_keys))
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one store, the others are shown)
        return Seen(alias, complete=False, error=explained(error))


def health(alias: str) -> list[dict[str, Any]]:
    """For each node of one store a dict: ``node``, ``ok``, ``problems`` and facts. Never raises."""
    try:
        return locks[alias].health()
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one store, the others are shown)
        return [{"node": alias, "ok": False, "problems": [explained(error)]}]


def last_hour(alias: str, name: str = "") -> tuple[list[Minute], str]:
    """The last hour of one lock, or of one store, and why it can't be told, if so. Never raises."""
    try:
        return locks[alias].last_hour(name), ""
    except Exception as error:  # noqa: BLE001  (whatever is wrong with one store, the others are shown)
        return [], explained(error)


class View(NamedTuple):
    """What one node says of one lock. Times are seconds; ``held`` is ``None`` when it knows of no holder."""

    node: str
    held: Held | None
    round_trip: float
    error: str = ""


def views(pk: str) -> list[View]:
    """Each node's own view of a lock, for stores of several; ``[]`` for others."""
    alias, name = parse_pk(pk)
    backend = locks[alias]
    if len(getattr(backend, "nodes", ())) < 2:
        return []
    seen = backend.drive(asked_one_by_one(name, backend))
    return [View(node, held, trip, explained(error) if error else "") for node, held, trip, error in seen]


def explained(error: Exception) -> str:
    """What went wrong, for a person who operates the store."""
    if isinstance(error, LockError):
        return error.reason
    logger.warning("a lock store could not be looked at", exc_info=error)
    return f"{type(error).__name__}: {error}"


def pattern_for(search: str) -> str:
    """The glob for what somebody typed into a search box: a part of the name, or a glob already."""
    return search if set(search) & set("*?[") else f"*{glob_escape(search)}*"


# ── words for people ─────────────────────────────────────────────────────────────────────────


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


def age(owner: Owner) -> float | None:
    """The seconds since this one asked, by its host's clock and ours; ``None`` when it did not say."""
    return max(0.0, time.time() - owner.since) if owner.since else None


def tenures(held: Held) -> list[tuple[Owner, Tenure]]:
    """Each holder, and how long it has had the lock: where the store doesn't know, since it asked for it."""
    known = held.tenures or (Tenure(),) * len(held.holders)
    return [(owner, _tenure(owner, tenure)) for owner, tenure in zip(held.holders, known, strict=True)]


def tenure(held: Held) -> Tenure:
    """The same of the first holder alone."""
    return _tenure(held.owner, held.tenure)


def _tenure(owner: Owner, tenure: Tenure) -> Tenure:
    asked = age(owner)
    # Of what is kept for a while after its release the store knows the end only: nobody had it before asking for it.
    least = [each for each in (tenure.held, asked or None) if each is not None]
    return tenure._replace(held=min(least, default=asked))


def what_happened(event: Happened) -> str:
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


def as_dict(alias: str, held: Held) -> dict[str, Any]:
    """A lock as JSON knows it. Times are seconds, ``since`` is Unix time."""
    owner, since = held.owner, tenure(held)
    return {
        "alias": alias,
        "name": held.name,
        "kind": held.kind,
        "host": owner.host,
        "pid": owner.pid,
        "thread": owner.thread,
        "task": owner.task,
        "label": owner.label,
        **({"extra": dict(owner.extra)} if owner.extra else {}),
        "since": None if since.held is None else time.time() - since.held,
        "held": since.held,
        "ttl": held.ttl,
        "renewals": since.renewals,
        "renewed": since.renewed,
        "waiters": held.waiters,
        "nodes": list(held.nodes),
        "digest": held.digest,
    }


# ── as the admin wants it ────────────────────────────────────────────────────────────────────

_SORT: dict[str, Callable[[HeldLock], Any]] = {
    "pk": lambda row: row.pk,
    "name": lambda row: row.name,
    "alias": lambda row: row.alias,
    "kind": lambda row: row.held.kind,
    "holder": lambda row: str(row.held.owner),
    "held": lambda row: tenure(row.held).held or 0.0,
    "ttl": lambda row: float("inf") if row.held.ttl is None else row.held.ttl,
    "waiters": lambda row: row.held.waiters,
    "nodes": lambda row: len(row.held.nodes),
}


class Rows:
    """The few names of a queryset that the admin's list uses, answered from a list. ``seen``: what each store said."""

    model = HeldLock
    ordered = True
    totally_ordered = False  # from Django 6.1 on the list asks: it is to sort by the primary key in the end
    query = SimpleNamespace(order_by=(), select_related=False)

    def __init__(self, rows: Iterable[HeldLock], seen: Sequence[Seen] = ()) -> None:
        self._rows = list(rows)
        self.seen = seen

    @classmethod
    def read(cls, aliases: Iterable[str], search: str, limit: int, max_keys: int) -> Rows:
        """The locks that live now. One with just the name that is searched for is found wherever it is."""
        seen = [_with(search, look(alias, pattern_for(search), limit, max_keys)) for alias in aliases]
        return cls((HeldLock.of(each.alias, held) for each in seen for held in each.locks), seen)

    def __iter__(self) -> Iterator[HeldLock]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def count(self) -> int:
        return len(self._rows)

    def _clone(self) -> Rows:
        return Rows(self._rows, self.seen)

    def where(self, condition: Callable[[HeldLock], bool]) -> Rows:
        """The rows that fulfil the condition."""
        return Rows(filter(condition, self._rows), self.seen)

    def order_by(self, *fields: str) -> Rows:
        rows = self._rows
        for field in reversed(fields):
            rows = sorted(rows, key=_SORT[field.removeprefix("-")], reverse=field.startswith("-"))
        return Rows(rows, self.seen)

    def filter(self, *conditions: Any, pk__in: Iterable[str] | None = None) -> Rows:
        """Those with the primary keys ``pk__in``. Other lookups are refused: there is no SQL."""
        if any(conditions):
            raise FieldError("locks are filtered by the filters beside the list only")
        wanted = None if pk__in is None else set(pk__in)
        return self if wanted is None else self.where(lambda row: row.pk in wanted)


def _with(name: str, seen: Seen) -> Seen:
    """The same, and the lock ``name``, if the search has not come to it."""
    if not name or seen.complete or seen.error or any(held.name == name for held in seen.locks):
        return seen
    try:
        row = find(make_pk(seen.alias, name))
    except LockError:
        return seen  # it has just answered: the next look will tell
    return seen._replace(locks=[*seen.locks, row.held]) if row else seen


def find(pk: str) -> HeldLock | None:
    """The lock with this primary key, and its queue, read now; ``None`` when nobody holds it.

    Raises ``LockError`` when its store can't be asked, ``ImproperlyConfigured`` when there is no such store.
    """
    alias, name = parse_pk(pk)
    try:
        held = locks[alias].describe(name)
    except (TypeError, ValueError):  # no name that a lock can have
        return None
    return HeldLock.of(alias, held) if held else None
