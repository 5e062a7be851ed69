"""A process that is stopped (SIGSTOP) between its last check of the lock and its write, on real databases.

Each is stopped when the statement is about to be sent. A check of the lock can't help then, and the row's fence
can.
"""

import pytest
from django.db import connections

from django_redlock.errors import StaleLock
from tests.fencing import workers
from tests.fencing.models import Shop, Stock
from tests.support.processes import ForkedWorker

FENCED = [way for way in workers.WAYS if way != "plain"]


@pytest.fixture
def stock(db):
    shop = Shop.objects.using(db).create(name="ours")
    return Stock.objects.using(db).create(quantity=5, shop=shop)


@pytest.fixture
def paused(start, stock, redis_url):
    """`paused(way)`: a seller that has read the row and is stopped before it writes the row in this way."""
    database = connections.settings[stock._state.db]

    def sell(way):
        settings = {"DJANGO_SETTINGS_MODULE": "tests.fencing.settings"}
        worker = start(ForkedWorker(workers.sell, redis_url, database, stock.pk, way, **settings))
        assert worker.expect("writing", timeout=90) == {"lost": False}
        worker.pause()
        return worker

    return sell


def goes_on(worker):
    """Return the outcome of the write when its process continues."""
    worker.tell("go")
    worker.resume()
    return worker.result(timeout=60)


@pytest.fixture
def successor(backend):
    """The next holder of the lock. The lease of the stopped holder ends by force, and its handle does not know."""
    lock = backend.lock("rows", fencing=True)
    yield lambda: backend.force_release("rows") and lock.acquire(timeout=30) and lock
    if lock.token:
        lock.release()


def in_the_shop(stock):
    return list(Stock.objects.using(stock._state.db).values_list("quantity", "fence"))


@pytest.mark.parametrize("way", FENCED)
def test_cannot_write_after_its_successor_has_read(paused, stock, successor, way):
    """A write after the successor has read the row under the lock raises StaleLock, and the successor's value stays."""
    late = paused(way)
    held = successor()
    read = Stock.objects.using(stock._state.db).fenced(held).claim(pk=stock.pk)
    assert goes_on(late) == StaleLock.__name__
    read.quantity -= 2
    read.save(lock=held)
    assert in_the_shop(stock) == [(3, held.fencing_token)]


@pytest.mark.parametrize("way", ["save", "update"])
def test_can_write_before_its_successor_has_looked(paused, stock, successor, way):
    late = paused(way)
    held = successor()
    assert goes_on(late) == "written"
    read = Stock.objects.using(stock._state.db).fenced(held).claim(pk=stock.pk)
    assert read.quantity == 4


def test_overwrites_without_the_fence(paused, stock, successor):
    """Control: a plain `save()` overwrites the successor's work."""
    late = paused("plain")
    held = successor()
    stock.quantity = 1
    stock.save(lock=held)
    assert goes_on(late) == "written"
    assert in_the_shop(stock) == [(4, held.fencing_token)]
