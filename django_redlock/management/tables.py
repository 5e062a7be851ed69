"""Formats locks as a table for a terminal."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..core.lock_info import LockInfo
from ..formatting import (
    added_fields,
    age,
    duration,
    ends_soon,
    longest_wait,
    others,
    owners,
    printable,
    shortened,
    state_of,
)

LEAST_WIDTH = 12  # columns of the terminal, the least width to which a column of names or holders is shortened
# The optional columns that are left out if the terminal is too narrow, the first ones first.
_LEFT_OUT_FIRST = ("KIND", "WAITING FOR", "STATE", "NODES")


class Cell(NamedTuple):
    """A cell of a table. ``style``: the name of a style of Django's commands, such as ``WARNING``; ``""``: no style."""

    text: str
    style: str = ""


class TableColumn(NamedTuple):
    """A column of a table of locks.

    ``cell``: makes the cell of a row from the store's alias and the lock. ``optional``: the column is left out when it
    has the same value in every row. ``shorten``: shortens the text of a cell to a number of characters; ``None`` for a
    column that can't be shortened.
    """

    head: str
    cell: Callable[[str, LockInfo], Cell]
    optional: bool = False
    shorten: Callable[[str, int], str] | None = None


def columns_of(text: str) -> int:
    """Return the number of columns that ``text`` takes in a terminal: two for each Chinese or Japanese character."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return (
        len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me") for c in text)
    )  # marks above another character


def _beginning(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _states(held: LockInfo) -> str:
    return ", ".join(dict.fromkeys(filter(None, map(state_of, owners(held)))))


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
    return Cell(text, "ERROR" if ends_soon(held) else "")


def _seconds(value: float | None, unknown: str) -> Cell:
    return Cell(unknown if value is None else duration(value))


STORE = TableColumn("STORE", lambda alias, _: Cell(alias))
COLUMNS = (
    TableColumn("NAME", lambda _, held: Cell(printable(held.name)), shorten=shortened),
    TableColumn("KIND", lambda _, held: Cell(printable(held.kind)), optional=True),
    TableColumn("STATE", lambda _, held: Cell(_states(held)), optional=True),
    TableColumn("HOLDER", lambda _, held: Cell(printable(_holders(held))), shorten=_beginning),
    TableColumn("HELD FOR", lambda _, held: _seconds(age(held.owner), "unknown")),
    TableColumn("LEFT", lambda _, held: _remaining(held)),
    TableColumn("WAITERS", lambda _, held: Cell(str(held.waiters), "WARNING" if held.waiters else ""), optional=True),
    TableColumn("WAITING FOR", lambda _, held: _seconds(longest_wait(held), ""), optional=True),
    TableColumn("NODES", lambda _, held: Cell(str(len(held.nodes) or "")), optional=True),
)


Shown = Sequence[tuple[TableColumn, Sequence[Cell]]]


def lock_table(
    found: Sequence[tuple[str, LockInfo]], width: int | None, *, with_store: bool
) -> tuple[list[Cell], list[list[Cell]]]:
    """Return the head and the rows of a table of locks. ``found``: pairs of store alias and lock.

    ``with_store``: whether the first column is the store's alias. Names and holders are shortened until the table fits
    into ``width`` columns of the terminal; if that is not enough, optional columns are left out. ``None`` means no
    limit. No column is shortened to less than `LEAST_WIDTH`, so the table may stay wider. Optional columns with the
    same value in every row are left out. In a table of a single row, only optional columns without a value are left
    out.
    """
    columns = (STORE, *COLUMNS) if with_store else COLUMNS
    filled = [(column, [column.cell(alias, held) for alias, held in found]) for column in columns]
    shown = [(column, cells) for column, cells in filled if not (column.optional and _says_nothing(cells))]
    most = math.inf if width is None else width
    for head in _LEFT_OUT_FIRST:
        if _total(_widths(shown, most)) > most:
            shown = [(column, cells) for column, cells in shown if column.head != head]
    cut = [
        [cell._replace(text=_fitted(cell.text, column, each)) for cell in cells]
        for (column, cells), each in zip(shown, _widths(shown, most), strict=True)
    ]
    return [Cell(column.head) for column, _ in shown], [list(row) for row in zip(*cut, strict=True)]


def _widths(shown: Shown, most: float) -> list[int]:
    """Return the width of each column. Columns that can be shortened are, until all fit into ``most`` columns."""
    widths = [max(len(column.head), *(columns_of(cell.text) for cell in cells)) for column, cells in shown]
    flexible = [index for index, (column, _) in enumerate(shown) if column.shorten]
    while _total(widths) > most and max(widths[each] for each in flexible) > LEAST_WIDTH:
        widths[max(flexible, key=widths.__getitem__)] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fitted(text: str, column: TableColumn, width: int) -> str:
    """Return ``text``, shortened until it takes at most ``width`` columns of a terminal."""
    length = width
    while column.shorten and columns_of(text) > width:
        text, length = column.shorten(text, length), length - 1
    return text


def _says_nothing(cells: Sequence[Cell]) -> bool:
    values = {cell.text for cell in cells}
    return len(values) == 1 and (len(cells) > 1 or not values - {"", "0"})
