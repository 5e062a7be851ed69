"""`python -m testproject.demo` holds flash sales with the lock, without it, and with segmented stock, then a load test.

The exit code is 0 if all results are as expected.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator

from testproject.demo import load, servers, stripes
from testproject.demo.report import Result, console, progress, table
from testproject.demo.sale import hold_sale
from testproject.demo.showcase import keep_serving

SALES = {"with the lock": "/buy/safe/", "lock switched off": "/unlocked/buy/risky/"}
CONFIRMED_WITHIN = 120.0  # seconds


def main() -> int:
    """Start the servers, hold the sales, print the results, stop the servers. Returns the exit code."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like Ctrl-C, SIGTERM then runs every `finally` block
    try:
        console.print("Starting Redis, a Celery worker and the shop ...")
        with servers.running(options.nodes) as address:
            url = f"http://{address[0]}:{address[1]}/admin/django_redlock/heldlock/"
            where = f"[bold]{url}[/]   name and password: [bold]{servers.LOGIN}[/]"
            console.print(f"Live locks: {where}", soft_wrap=True)
            faults = list(present(address, options))
            for fault in faults:
                console.print(f"[bold red]Not as promised:[/] {fault}")
            if not options.once:
                console.print(f"Some slow sales go on, until Ctrl-C. Their locks: {where}", soft_wrap=True)
                keep_serving(address)
                console.print("\nStopping ...")
    except KeyboardInterrupt:
        console.print("\nStopped.")
        return 130
    return 1 if faults else 0


def arguments() -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m testproject.demo", description=__doc__)
    parser.add_argument("--items", type=int, default=100)
    parser.add_argument("--buyers", type=int, default=400)
    parser.add_argument("--at-once", type=int, default=40)
    parser.add_argument("--orders", type=int, default=300, help="of the load test; 0 leaves it out")
    parser.add_argument("--nodes", type=int, default=0, help="lock on a majority of so many servers")
    attended = sys.stdin.isatty() and sys.stdout.isatty()
    parser.add_argument(
        "--once", action="store_true", default=not attended, help="end after the sales (default where no terminal is)"
    )
    return parser.parse_args()


def present(address: tuple[str, int], options: argparse.Namespace) -> Iterator[str]:
    """Hold the sales and print the results. Yields a message for each unexpected result."""
    results = [flash_sale(title, path, address, options) for title, path in SALES.items()]
    confirmed = wait_for_confirmations()
    asked = sum(len(result.sale.duplicates) for result in results)
    duplicates = sum(sum(result.sale.duplicates) for result in results)
    console.print(table(results))
    console.print(f"Confirmations: asked for {asked} times, {duplicates} deduplicated, {confirmed} run")

    locked, unlocked = results
    expected = min(options.items, options.buyers)
    if locked.sale.sold != expected or locked.left != options.items - expected:
        yield f"{locked.sale.sold} of {expected} sold with the lock, {locked.left} left"
    if not unlocked.oversold and options.buyers > options.items:
        yield "without the lock nothing was oversold"
    if confirmed + duplicates != asked:
        yield f"{asked} confirmations asked for, but {confirmed} run and {duplicates} deduplicated"
    yield from stripes.compare(address, options.at_once)
    if options.orders:
        yield from load.compare(os.environ["TESTPROJECT_REDIS"], options.orders)


def flash_sale(title: str, path: str, address: tuple[str, int], options: argparse.Namespace) -> Result:
    """Hold one sale of a new product, with a progress bar. Returns its result."""
    from testproject.shop.models import Product, Stock

    product = Product.objects.create(sku=path.split("/")[-2], title=f"Console, sold {title}")
    stock = Stock.objects.create(product=product, quantity=options.items)
    with progress() as bar:
        task = bar.add_task(title, total=options.buyers)
        sale = hold_sale(
            address,
            path,
            buyers=options.buyers,
            at_once=options.at_once,
            advance=lambda: bar.advance(task),
        )
    stock.refresh_from_db()
    return Result(title, options.items, stock.quantity, sale)


def wait_for_confirmations() -> int:
    """Wait until every order has been confirmed. Returns how many confirmation tasks have run."""
    from django.db.models import Sum

    from testproject.shop.models import Order

    deadline = time.monotonic() + CONFIRMED_WITHIN
    with progress() as bar:
        task = bar.add_task("confirmations", total=Order.objects.count())
        while left := Order.objects.filter(confirmations=0).count():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} orders are not confirmed after {CONFIRMED_WITHIN:g} s")
            bar.update(task, completed=Order.objects.exclude(confirmations=0).count())
            time.sleep(0.1)
        bar.update(task, completed=Order.objects.count())
    return int(Order.objects.aggregate(run=Sum("confirmations"))["run"])


if __name__ == "__main__":
    sys.exit(main())
