"""Something to look at in the admin: sales so slow that their locks can be watched."""

from __future__ import annotations

import contextlib
import threading

from django_redlock import lock
from django_redlock.errors import LockUnavailable
from testproject.demo.sale import post

SLOW = {"vase": 2.0, "clock": 3.0}  # seconds that one order takes
BID = 4.0  # seconds that a bidder thinks
BUYERS = 3  # for each product: one holds the lock, two wait for it
STOCK = 1_000_000


def keep_serving(address: tuple[str, int]) -> None:
    """Sell slowly until Ctrl-C."""
    from testproject.shop.models import Product, Stock

    for sku, handling in SLOW.items():
        product = Product.objects.create(sku=sku, title=sku.capitalize(), handling=handling)
        Stock.objects.create(product=product, quantity=STOCK)
    over = threading.Event()
    for sku in SLOW:
        for number in range(BUYERS):
            collector = (address, f"/buy/{sku}/", f"collector {number}", over)
            threading.Thread(target=buy_again_and_again, args=collector, daemon=True).start()
    for number in range(BUYERS):
        threading.Thread(target=bid_again_and_again, args=(f"bidder {number}", over), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
    over.set()


def buy_again_and_again(address: tuple[str, int], path: str, buyer: str, over: threading.Event) -> None:
    """Buy, and when told to come back later do so; the shop may be stopped at any time."""
    while not over.is_set():
        with contextlib.suppress(OSError):
            _, _, retry_after = post(address, path, buyer=buyer)
        over.wait(retry_after or 0.5)


def bid_again_and_again(bidder: str, over: threading.Event) -> None:
    """Hold a lock that a majority of the nodes grants; they may be stopped at any time."""
    while not over.is_set():
        with contextlib.suppress(LockUnavailable), lock("auction:painting", using="redlock", owner=bidder):
            over.wait(BID)
        over.wait(0.5)
