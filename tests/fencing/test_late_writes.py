"""Writes of each kind under the lock of a former holder."""

import pytest
from django.db import transaction
from django.forms import model_to_dict

from django_redlock.errors import StaleLock
from tests.fencing.models import HeavyStock, Parcel, Shop, Stock


def rows(stock, model=Stock):
    return model.objects.using(stock._state.db)


# Each gets the object as its successor has written it, and the lock of its former holder.
WRITES = {
    "save": lambda stock, late: stock.save(lock=late),
    "some fields": lambda stock, late: stock.save(lock=late, update_fields=["quantity"]),
    "deferred fields": lambda stock, late: rows(stock).only("quantity").get().save(lock=late),
    "new object": lambda stock, late: Stock(pk=stock.pk).save(lock=late, using=stock._state.db),
    "proxy": lambda stock, late: rows(stock, HeavyStock).get().save(lock=late),
    "update of proxies": lambda stock, late: rows(stock, HeavyStock).fenced(late).update(quantity=1),
    "refresh": lambda stock, late: stock.refresh_from_db(lock=late),
    "delete": lambda stock, late: stock.delete(lock=late),
    "made-up key": lambda stock, late: rows(stock, Parcel).get().save(lock=late),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_refused(db, first, second, write):
    """The error has both tokens, nothing has changed, and the transaction around the write can go on."""
    stock = Stock(quantity=4)
    for each in (stock, Parcel(address="a")):
        each.save(lock=second, using=db)
    before = model_to_dict(stock)
    with transaction.atomic(using=db):
        with pytest.raises(StaleLock, match="written under fencing token") as refused:
            write(stock, first)
        Shop.objects.using(db).create(name="after")
    error = refused.value
    assert (error.name, error.token, error.fence) == ("rows", first.fencing_token, second.fencing_token)
    assert rows(stock).values_list("quantity", "fence").get() == (4, second.fencing_token)
    assert (model_to_dict(stock), stock.fence) == (before, second.fencing_token)
    assert Shop.objects.using(db).exists()
