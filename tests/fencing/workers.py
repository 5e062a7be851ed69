"""Sellers in separate processes that are paused in the middle of a sale."""

from typing import Any

import django
from django.db import connection, connections

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockLost

TTL = 200.0

WAYS = {
    "save": lambda stock, held: stock.save(lock=held),
    "some fields": lambda stock, held: stock.save(lock=held, update_fields=["quantity"]),
    "delete": lambda stock, held: stock.delete(lock=held),
    "update": lambda stock, held: _rows(stock).fenced(held).update(quantity=stock.quantity),
    "delete all": lambda stock, held: _rows(stock).fenced(held).delete(),
    "bulk": lambda stock, held: _rows(stock).fenced(held).bulk_update([stock], ["quantity"]),
    "joined": lambda stock, held: _rows(stock).filter(shop__name="ours").fenced(held).update(quantity=stock.quantity),
    "claim": lambda stock, held: _rows(stock).fenced(held).claim(),
    "plain": lambda stock, _held: stock.save(),
}


def _rows(stock: Any) -> Any:
    return type(stock).objects.filter(pk=stock.pk)


def sell(channel: Any, url: str, database: dict[str, Any], pk: int, way: str) -> str:
    """Sell one under the lock. Reports "writing" before the first UPDATE. Returns "written", or an error's name."""
    django.setup()
    connections.settings["default"] = database
    del connections["default"]
    from tests.fencing.models import Stock

    begun: list[str] = []

    def send(execute: Any, sql: str, *args: Any) -> Any:
        if sql.startswith("UPDATE") and not begun:
            begun.append(sql)
            channel.say("writing", lost=held.lost)
            channel.hear("go", timeout=120)
        return execute(sql, *args)

    held = RedisBackend(url, node_timeout=20).lock("rows", ttl=TTL, fencing=True)
    assert held.acquire(timeout=30)
    stock = Stock.objects.get(pk=pk)
    stock.quantity -= 1
    try:
        with connection.execute_wrapper(send):
            WAYS[way](stock, held)
    except LockLost as error:
        return type(error).__name__
    finally:
        connection.close()
    return "written"
