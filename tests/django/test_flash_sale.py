"""The test project's flash sale over stripes: real processes, a real database, a real Redis."""

from functools import partial

import pytest

from tests.django.flash_sale_workers import close_shop, open_shop, sell_out
from tests.support.processes import ForkedWorker

PROCESSES, BUYERS = 4, 4


@pytest.mark.parametrize("quantities", [[30], [20, 0, 1, 9], [2] * 16], ids=["one", "uneven", "sixteen"])
def test_exactly_the_stock_is_sold(start, redis_url, tmp_path, quantities):
    """Exactly the stock is sold, even if segments run out at different times."""
    env = {
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "TESTPROJECT_REDIS": redis_url,
        "TESTPROJECT_DATABASE": str(tmp_path / "shop.sqlite3"),
    }
    worker = partial(ForkedWorker, **env)
    start(worker(open_shop, quantities)).result(120)
    shops = [start(worker(sell_out, len(quantities), BUYERS)) for _ in range(PROCESSES)]
    for shop in shops:
        shop.expect("ready", 120)
    for shop in shops:
        shop.tell("go")
    statuses = [shop.result(100) for shop in shops]
    orders, left = start(worker(close_shop)).result(120)
    assert sum(each[201] for each in statuses) == orders == sum(quantities)
    assert left == [0] * len(quantities)
    assert sum(each[410] for each in statuses) == PROCESSES * BUYERS
    assert set().union(*statuses) <= {201, 409, 410}
