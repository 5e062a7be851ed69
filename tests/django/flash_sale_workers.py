"""Workers for test_flash_sale.py: the test project's shop in separate processes, on a separate database."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import django

from tests.support.processes import Channel

SKU = "vase"


def open_shop(channel: Channel, quantities: Sequence[int]) -> None:
    """Create the tables, and a product with so many items in its segments."""
    django.setup()
    from django.core.management import call_command

    from testproject.shop.models import Product

    call_command("migrate", verbosity=0)
    product = Product.objects.create(sku=SKU, title="Vase", handling=0.002)
    for stripe, quantity in enumerate(quantities):
        product.segments.create(stripe=stripe, quantity=quantity)


def sell_out(channel: Channel, stripes: int, buyers: int) -> Counter[int]:
    """Buy in several threads until nothing is left, and return the statuses of all responses."""
    django.setup()
    from django.db import connections
    from django.test import RequestFactory

    from testproject.shop.views import buy_from

    view, post = buy_from(stripes), RequestFactory().post

    def buy() -> Counter[int]:
        statuses: Counter[int] = Counter()
        while not statuses[410]:
            statuses[view(post("/"), sku=SKU).status_code] += 1
        connections.close_all()
        return statuses

    channel.say("ready")
    channel.hear("go", 120)
    with ThreadPoolExecutor(buyers) as crowd:
        return sum((each.result() for each in [crowd.submit(buy) for _ in range(buyers)]), Counter())


def close_shop(channel: Channel) -> tuple[int, list[int]]:
    """Return the number of orders, and the rest of each segment."""
    django.setup()
    from testproject.shop.models import Order, StockSegment

    return Order.objects.count(), [segment.quantity for segment in StockSegment.objects.order_by("stripe")]
