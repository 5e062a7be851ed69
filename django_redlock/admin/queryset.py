"""The admin's list reads this instead of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from django.core.exceptions import FieldError

from ..errors import LockError
from ..formatting import age
from ..inspection import Listed, find_lock, list_locks, pattern_for
from ..models import HeldLock, make_pk

_SORT: dict[str, Callable[[HeldLock], Any]] = {
    "pk": lambda row: row.pk,
    "name": lambda row: row.name,
    "alias": lambda row: row.alias,
    "kind": lambda row: row.held.kind,
    "holder": lambda row: str(row.held.owner),
    "held": lambda row: age(row.held.owner) or 0.0,
    "ttl": lambda row: float("inf") if row.held.remaining is None else row.held.remaining,
    "waiters": lambda row: row.held.waiters,
    "nodes": lambda row: len(row.held.nodes),
}


class LockRows:
    """The few names of a queryset that the admin's list uses, answered from a list. ``seen``: what each store said."""

    model = HeldLock
    ordered = True
    totally_ordered = False  # from Django 6.1 on the list asks: it is to sort by the primary key in the end
    query = SimpleNamespace(order_by=(), select_related=False)

    def __init__(self, rows: Iterable[HeldLock], seen: Sequence[Listed] = ()) -> None:
        self._rows = list(rows)
        self.seen = seen

    @classmethod
    def read(cls, aliases: Iterable[str], search: str, limit: int, max_keys: int) -> LockRows:
        """The locks that live now. One with just the name that is searched for is found wherever it is."""
        pattern = pattern_for(search, special="*?")  # as the help beside the search says
        seen = [_with(search, list_locks(alias, pattern, limit, max_keys)) for alias in aliases]
        return cls((HeldLock.of(each.alias, held) for each in seen for held in each.locks), seen)

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
        """The rows that fulfil the condition."""
        return LockRows(filter(condition, self._rows), self.seen)

    def order_by(self, *fields: str) -> LockRows:
        rows = self._rows
        for field in reversed(fields):
            rows = sorted(rows, key=_SORT[field.removeprefix("-")], reverse=field.startswith("-"))
        return LockRows(rows, self.seen)

    def filter(self, *conditions: Any, pk__in: Iterable[str] | None = None) -> LockRows:
        """Those with the primary keys ``pk__in``. Other lookups are refused: there is no SQL."""
        if any(conditions):
            raise FieldError("locks are filtered by the filters beside the list only")
        wanted = None if pk__in is None else set(pk__in)
        return self if wanted is None else self.where(lambda row: row.pk in wanted)


def _with(name: str, seen: Listed) -> Listed:
    """The same, and the lock ``name``, if the search has not come to it."""
    if not name or seen.complete or seen.error or any(held.name == name for held in seen.locks):
        return seen
    try:
        row = find_lock(make_pk(seen.alias, name))
    except LockError:
        return seen  # it has just answered: the next look will tell
    return seen._replace(locks=[*seen.locks, row.held]) if row else seen
