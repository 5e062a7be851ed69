"""Slow sales for the admin's list, so that their locks can be watched."""

from __future__ import annotations

import contextlib
import threading

from django_redlock import lock
from django_redlock.errors import LockUnavailable
from testproject.demo.sale import post

SLOW = {"vase": 2.0, "clock": 3.0}  # seconds for one order
BID = 4.0  # seconds for which a bidder holds the lock
BUYERS = 3  # for each product: one holder and two waiters
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
    """Buy repeatedly, and wait when the shop asks for it. Tolerates a shop that is stopped."""
    while not over.is_set():
        with contextlib.suppress(OSError):
            _, _, retry_after = post(address, path, buyer=buyer)
        over.wait(retry_after or 0.5)


def bid_again_and_again(bidder: str, over: threading.Event) -> None:
    """Acquire a lock on a quorum of nodes repeatedly. Tolerates nodes that are stopped."""
    while not over.is_set():
        with contextlib.suppress(LockUnavailable), lock("auction:painting", using="redlock", owner=bidder):
            over.wait(BID)
        over.wait(0.5)
