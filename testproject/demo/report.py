"""What the sales came to, as tables for people, and whether that is what was promised."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from testproject.demo.sale import Sale


@dataclass(frozen=True)
class Result:
    """A sale of `items` under a name; `left` is what the shop believes to have afterwards."""

    title: str
    items: int
    left: int
    sale: Sale

    @property
    def oversold(self) -> int:
        return max(0, self.sale.sold - self.items)


ROWS = {
    "sold": lambda result: f"{result.sale.sold}",
    "oversold": lambda result: f"[bold red]{result.oversold}" if result.oversold else "[bold green]0",
    "refused": lambda result: f"{result.sale.refused}",
    "left, says the shop": lambda result: f"{result.left}",
    "requests/s": lambda result: f"{result.sale.requests_per_second:.0f}",
    "to buy took p50": lambda result: f"{result.sale.percentile(50) * 1000:.0f} ms",
    "to buy took p99": lambda result: f"{result.sale.percentile(99) * 1000:.0f} ms",
}


def table(results: list[Result]) -> Table:
    """The results side by side."""
    sight = Table(title=f"{results[0].items} items, {len(results[0].sale.visits)} buyers")
    sight.add_column("")
    for result in results:
        sight.add_column(result.title, justify="right")
    for name, cell in ROWS.items():
        sight.add_row(name, *map(cell, results))
    return sight
