"""Formats locks as a table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..core.lock_info import LockInfo
from ..formatting import age, duration, ends_soon, longest_wait, others, owners, shortened, state_of

LEAST_WIDTH = 16  # characters, the least width to which a column of names or holders is shortened


class Cell(NamedTuple):
    """A cell of a table. ``style``: the name of a style of Django's commands, such as ``WARNING``; ``""``: no style."""

    text: str
    style: str = ""


class TableColumn(NamedTuple):
    """A column of a table of locks.

    ``cell``: makes the cell of a row from the store's alias and the lock. ``optional``: the column is left out when it
    has the same value in every row. ``flexible``: its cells can be shortened.
    """

    head: str
    cell: Callable[[str, LockInfo], Cell]
    optional: bool = False
    flexible: bool = False


def printable(value: object) -> str:
    """Return ``value`` as text with escaped control characters, so that a terminal does not obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def _states(held: LockInfo) -> str:
    return ", ".join(dict.fromkeys(filter(None, map(state_of, owners(held)))))


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
    TableColumn("NAME", lambda _, held: Cell(printable(held.name)), flexible=True),
    TableColumn("KIND", lambda _, held: Cell(printable(held.kind)), optional=True),
    TableColumn("STATE", lambda _, held: Cell(_states(held)), optional=True),
    TableColumn("HOLDER", lambda _, held: Cell(printable(f"{held.owner} {others(held)}".rstrip())), flexible=True),
    TableColumn("HELD FOR", lambda _, held: _seconds(age(held.owner), "unknown")),
    TableColumn("LEFT", lambda _, held: _remaining(held)),
    TableColumn("WAITERS", lambda _, held: Cell(str(held.waiters), "WARNING" if held.waiters else ""), optional=True),
    TableColumn("WAITING FOR", lambda _, held: _seconds(longest_wait(held), ""), optional=True),
    TableColumn("NODES", lambda _, held: Cell(str(len(held.nodes) or "")), optional=True),
)


def lock_table(
    found: Sequence[tuple[str, LockInfo]], width: int | None, *, with_store: bool
) -> tuple[list[Cell], list[list[Cell]]]:
    """Return the head and the rows of a table of locks. ``found``: pairs of store alias and lock.

    ``with_store``: whether the first column is the store's alias. Flexible columns are shortened until the table is
    ``width`` characters wide; ``None`` means no limit. No column is shortened to less than `LEAST_WIDTH`, so the table
    may stay wider. Optional columns with the same value in every row are left out. In a table of a single row, only
    optional columns without a value are left out.
    """
    columns = (STORE, *COLUMNS) if with_store else COLUMNS
    filled = [(column, [column.cell(alias, held) for alias, held in found]) for column in columns]
    shown = [(column, cells) for column, cells in filled if not (column.optional and _says_nothing(cells))]
    widths = [max(len(column.head), *(len(cell.text) for cell in cells)) for column, cells in shown]
    if width is not None:
        flexible = [index for index, (column, _) in enumerate(shown) if column.flexible]
        while sum(widths) + 2 * (len(widths) - 1) > width and max(widths[each] for each in flexible) > LEAST_WIDTH:
            widths[max(flexible, key=widths.__getitem__)] -= 1
    cut = [
        [cell._replace(text=shortened(cell.text, most)) if column.flexible else cell for cell in cells]
        for (column, cells), most in zip(shown, widths, strict=True)
    ]
    return [Cell(column.head) for column, _ in shown], [list(row) for row in zip(*cut, strict=True)]


def _says_nothing(cells: Sequence[Cell]) -> bool:
    values = {cell.text for cell in cells}
    return len(values) == 1 and (len(cells) > 1 or not values - {"", "0"})
