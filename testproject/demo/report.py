"""Output of the demo: progress bars, and tables of the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from testproject.demo.sale import Sale

console = Console()


def progress() -> Progress:
    """Returns a progress bar with a count and a clock."""
    label = TextColumn("{task.description:<18}")
    return Progress(label, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)


@dataclass(frozen=True)
class Result:
    """The result of one sale of `items` items. `left`: the remaining stock according to the shop."""

    title: str
    items: int
    left: int
    sale: Sale

    @property
    def oversold(self) -> int:
        return max(0, self.sale.sold - self.items)


Rows = Mapping[str, Callable[[Result], str]]

TIMES: Rows = {
    "to buy took p50": lambda result: f"{result.sale.percentile(50) * 1000:.0f} ms",
    "to buy took p99": lambda result: f"{result.sale.percentile(99) * 1000:.0f} ms",
}
ROWS: Rows = {
    "sold": lambda result: f"{result.sale.sold}",
    "oversold": lambda result: f"[bold red]{result.oversold}" if result.oversold else "[bold green]0",
    "refused": lambda result: f"{result.sale.refused}",
    "left, says the shop": lambda result: f"{result.left}",
    "requests/s": lambda result: f"{result.sale.requests_per_second:.0f}",
    **TIMES,
}
THROUGHPUT: Rows = {
    "sold": ROWS["sold"],
    "oversold": ROWS["oversold"],
    "left, says the shop": ROWS["left, says the shop"],
    "orders/s": lambda result: f"[bold]{result.sale.sold_per_second:.0f}",
    **TIMES,
}


def table(results: list[Result], rows: Rows = ROWS, note: str = "") -> Table:
    """Returns a table with one column for each result."""
    sight = Table(title=f"{results[0].items} items, {len(results[0].sale.visits)} buyers{note}")
    sight.add_column("")
    for result in results:
        sight.add_column(result.title, justify="right")
    for name, cell in rows.items():
        sight.add_row(name, *map(cell, results))
    return sight


def bars(values: Mapping[str, float], width: int = 50) -> str:
    """Returns a bar for each value. The longest bar has `width` characters."""
    longest, name_width = max(values.values()), max(map(len, values))
    return "\n".join(
        f"{name:<{name_width}} {'█' * max(1, round(value / longest * width))} {value:g}"
        for name, value in values.items()
    )
