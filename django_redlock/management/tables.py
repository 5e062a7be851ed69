"""Formats locks as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.lock_info import LockInfo
from ..formatting import (
    added_fields,
    age,
    duration,
    longest_wait,
    others,
    owners,
    printable,
    shortened,
    state_of,
)

LEAST_WIDTH = 12  # columns of the terminal, to which names and holders are shortened
PLAIN = {"KIND": {"mutex"}, "WAITERS": {"0"}, "NODES": {""}}  # a column of such cells only is left out


class Cell(NamedTuple):
    """A cell of a table. ``style``: the name of a style of Django's commands, such as ``WARNING``; ``""``: no style."""

    text: str
    style: str = ""


def lock_table(found: Sequence[tuple[str, LockInfo]], width: int | None, *, with_store: bool) -> list[list[Cell]]:
    """Return a table of locks: its head, and a row for each lock. ``found``: pairs of store alias and lock.

    ``with_store``: whether the first column is the store's alias. Names and holders are shortened to fit ``width``
    columns of the terminal (``None``: no limit). Columns that are empty for all locks are left out.
    """
    rows = [_row(alias, held) for alias, held in found]
    heads = [
        head
        for head in rows[0]
        if (head != "STORE" or with_store) and {row[head].text for row in rows} != PLAIN.get(head)
    ]
    if width is not None:
        _shorten(rows, "NAME", width // 3)
        _shorten(rows, "HOLDER", width - sum(_width(head, rows) + 2 for head in heads if head != "HOLDER"))
    return [[Cell(head, "MIGRATE_HEADING") for head in heads], *([row[head] for head in heads] for row in rows)]


def _row(alias: str, held: LockInfo) -> dict[str, Cell]:
    states = ", ".join(dict.fromkeys(filter(None, map(state_of, owners(held)))))
    waited = longest_wait(held)
    waiters = str(held.waiters) if waited is None else f"{held.waiters}, for {duration(waited)}"
    return {
        "STORE": Cell(alias),
        "NAME": Cell(printable(held.name)),
        "KIND": Cell(" ".join(filter(None, [printable(held.kind), states]))),
        "HOLDER": Cell(printable(_holders(held))),
        "HELD FOR": Cell(duration(age(held.owner))),
        "LEFT": _remaining(held),
        "WAITERS": Cell(waiters, "WARNING" if held.waiters else ""),
        "NODES": Cell(str(len(held.nodes) or "")),
    }


def _holders(held: LockInfo) -> str:
    owner = held.owner
    where = f"{owner.host}:{owner.pid}" if owner.host else ""
    thread = owner.task or owner.thread  # at the end, because it says least and may be cut off
    return " ".join(filter(None, [where, owner.label, *added_fields(owner), others(held), thread])) or str(owner)


def _remaining(held: LockInfo) -> Cell:
    left = held.remaining
    if left is None:
        return Cell("no end", "ERROR")
    text = f"{left:.1f} s" if left < 60 else duration(left)
    if state_of(held.owner) == "done":
        return Cell(f"again in {text}")
    overdue = held.ttl is not None and left < held.ttl / 3  # a renewal, or the lease is not renewed
    return Cell(text, "ERROR" if overdue else "")


def _width(head: str, rows: Sequence[dict[str, Cell]]) -> int:
    return max(len(head), *(len(row[head].text) for row in rows))


def _shorten(rows: Sequence[dict[str, Cell]], head: str, width: int) -> None:
    for row in rows:
        row[head] = Cell(shortened(row[head].text, max(LEAST_WIDTH, width)))
