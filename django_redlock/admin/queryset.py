"""`LockRows` replaces the queryset of the admin's list, because the rows come from the lock stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import FieldError

from ..core.lock_info import by_trouble
from ..errors import LockError
from ..models import HeldLock
from ..store_queries import Listed, find_lock, list_locks, pattern_for

_FOREVER = float("inf")
# By the time of an event, not by the time since then, which grows while the rows are sorted.
_SORT: dict[str, Callable[[HeldLock], Any]] = {
    "pk": lambda row: row.pk,
    "name": lambda row: row.name,
    "holder": lambda row: str(row.held.owner),
    "held": lambda row: -(row.held.since or _FOREVER),
    "ttl": lambda row: _FOREVER if row.held.remaining is None else row.held.remaining,
    "waiters": lambda row: row.held.waiters,
    "wait": lambda row: -min((owner.since or _FOREVER for owner in row.held.queue), default=_FOREVER),
    "trouble": lambda row: by_trouble(row.held),
    "nodes": lambda row: len(row.held.nodes),
}


class LockRows:
    """A list of locks with the methods of a queryset that the admin uses.

    ``seen``: the result of `list_locks` for each store that was read.
    """

    model = HeldLock
    ordered = True
    totally_ordered = False  # read by Django 6.1 and later, which then add the primary key to the order
    query = SimpleNamespace(order_by=(), select_related=False)

    def __init__(self, rows: Iterable[HeldLock], seen: Sequence[Listed] = ()) -> None:
        self._rows = list(rows)
        self.seen = seen

    @classmethod
    def read(cls, aliases: Iterable[str], search: str, limit: int, max_keys: int) -> LockRows:
        """Read the live locks that match ``search`` from the stores.

        ``limit`` and ``max_keys``: as in `list_locks`. These limits don't apply to a lock whose full name is
        ``search``.
        """
        pattern = pattern_for(search, special="*?")  # "[" is no wildcard in this search
        seen = [_with(search, list_locks(alias, pattern, limit, max_keys)) for alias in aliases]
        return cls([HeldLock.of(each.alias, held) for each in seen for held in each.locks], seen)

    def __iter__(self) -> Iterator[HeldLock]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def count(self) -> int:
        return len(self._rows)

    def _clone(self) -> LockRows:
        return LockRows(self._rows, self.seen)

    def where(self, condition: Callable[[HeldLock], bool]) -> LockRows:
        """Return the rows for which ``condition`` is true."""
        return LockRows(filter(condition, self._rows), self.seen)

    def order_by(self, *fields: str) -> LockRows:
        rows = self._rows
        for field in reversed(fields):
            rows = sorted(rows, key=_SORT[field.removeprefix("-")], reverse=field.startswith("-"))
        return LockRows(rows, self.seen)

    def filter(self, *conditions: Any, pk__in: Iterable[str] | None = None) -> LockRows:
        """Return the rows with the primary keys ``pk__in``. Raises ``FieldError`` for any other condition."""
        if any(conditions):
            raise FieldError("locks are filtered by the filters beside the list only")
        wanted = None if pk__in is None else set(pk__in)
        return self if wanted is None else self.where(lambda row: row.pk in wanted)


def _with(name: str, seen: Listed) -> Listed:
    """Return ``seen`` with the lock ``name`` added if the scan has missed it."""
    if not name or seen.complete or seen.error or any(held.name == name for held in seen.locks):
        return seen
    try:
        row = find_lock(seen.alias, name)
    except LockError:
        return seen  # the next refresh shows the error
    return seen._replace(locks=[*seen.locks, row.held]) if row else seen
