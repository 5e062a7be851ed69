"""The sale with the stock in segments, each with its own lock. Measures the orders per second."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from testproject.demo.report import THROUGHPUT, Result, console, progress, table
from testproject.demo.sale import hold_sale

ITEMS, BUYERS = 160, 200
HANDLING = 0.02  # seconds for which one order holds a segment, longer than a request takes


def compare(address: tuple[str, int], at_once: int) -> Iterator[str]:
    """Sell from 1, 4 and 16 segments, and print the results. Yields a message for each unexpected result."""
    from testproject.shop.urls import STRIPES

    results = [striped_sale(stripes, address, at_once) for stripes in STRIPES]
    console.print(table(results, THROUGHPUT, f", {HANDLING * 1000:.0f} ms an order"))
    for result in results:
        if result.sale.sold != ITEMS or result.left:
            yield f"{result.sale.sold} of {ITEMS} sold from {result.title}, {result.left} left"


def striped_sale(stripes: int, address: tuple[str, int], at_once: int) -> Result:
    """Hold one sale of a new product whose segments run out one after another. Returns its result."""
    from testproject.shop.models import Product

    title = f"{stripes} stripe{'s' * (stripes > 1)}"
    product = Product.objects.create(sku=f"striped-{stripes}", title=f"Console, sold from {title}", handling=HANDLING)
    for stripe, quantity in enumerate(unevenly(ITEMS, stripes)):
        product.segments.create(stripe=stripe, quantity=quantity)
    with progress() as bar:
        task = bar.add_task(title, total=BUYERS)
        sale = hold_sale(
            address,
            f"/striped/{stripes}/buy/{product.sku}/",
            buyers=BUYERS,
            at_once=at_once,
            advance=lambda: bar.advance(task),
            patient=True,
        )
    return Result(title, ITEMS, sum(segment.quantity for segment in product.segments.all()), sale)


def unevenly(items: int, parts: int) -> list[int]:
    """Returns `items` split into `parts` parts of about equal size, the first twice as large."""
    marks = [0, *(round(items * part / (parts + 1)) for part in range(2, parts + 1)), items]
    return [after - before for before, after in pairwise(marks)]
