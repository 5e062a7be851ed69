"""`save()`, `delete()` and `refresh_from_db()` under a lock."""

import asyncio
from contextlib import nullcontext

import pytest
from django.db import IntegrityError, models, transaction

from django_redlock import lock
from django_redlock.errors import LockLost, LockNotHeld, StaleLock
from django_redlock.testing.conformance.shared_handles import MAKE
from tests.fencing.models import Parcel, Press, Shelf, Stock
from tests.support.locks import new_lock


@pytest.fixture
def stock(db):
    return Stock.objects.using(db).create(sku="a", quantity=5)


def row(obj):
    """Return quantity and fence of the row in the database."""
    return Stock.objects.using(obj._state.db).values_list("quantity", "fence").get(pk=obj.pk)


def test_save_stores_the_token(stock, held):
    """So does a save of some fields, and of an object with deferred fields. A row may be written by a new object."""
    holder, using = held(), stock._state.db
    for quantity, options in (4, {}), (3, {"update_fields": ["quantity"]}):
        stock.quantity = quantity
        stock.save(lock=holder, **options)
        assert row(stock) == (quantity, holder.fencing_token)
    assert stock.fence == holder.fencing_token
    partly, third = Stock.objects.using(using).only("quantity").get(pk=stock.pk), held()
    partly.quantity = 2
    partly.save(lock=third)
    assert row(stock) == (2, third.fencing_token)
    Stock(pk=stock.pk, quantity=1).save(lock=third, using=using)
    assert row(stock) == (1, third.fencing_token)


def test_lock_that_was_lost(stock, backend):
    """A handle that knows of its loss is refused at once with StaleLock."""
    passed = [0.0]
    own = type(backend)(backend.location, clock=lambda: backend.clock() + passed[0], node_timeout=5)
    holder = own.lock("rows", fencing=True, auto_renew=False, ttl=60)
    assert holder.acquire(timeout=10)
    passed[0] = 61.0
    with pytest.raises(StaleLock, match="lost before the write") as refused:
        stock.save(lock=holder)
    assert isinstance(refused.value, LockLost)
    assert row(stock) == (5, 0)


def test_nothing_held(stock, backend):
    """A handle that holds nothing, and `None`, are refused."""
    handle = backend.lock("other", fencing=True)
    with pytest.raises(LockNotHeld):
        stock.save(lock=handle)
    with handle:
        stock.save(lock=handle)
    with backend.lock("other") as unfenced, pytest.raises(TypeError, match="fencing=True"):
        stock.save(lock=unfenced)
    for nothing in (handle, None):
        for write in (stock.save, stock.delete, Stock.objects.fenced):
            with pytest.raises(LockNotHeld):
                write(lock=nothing)
    with pytest.raises(TypeError, match="lock must be a held lock"):
        stock.save(lock="rows")


def test_token_alone(stock, first, second):
    """A process that got only the token, as from `redlock_run`, can write under it."""
    stock.save(lock=second.fencing_token)
    with pytest.raises(StaleLock, match=str(first.fencing_token)):
        stock.save(lock=first.fencing_token)


def test_without_lock(stock, held):
    """A plain `save()` writes as usual, and never lowers the fence."""
    before = Stock.objects.using(stock._state.db).get(pk=stock.pk)
    holder = held()
    stock.save(lock=holder)
    before.quantity = 9
    before.save()
    assert before.fence == 0
    assert row(stock) == (9, holder.fencing_token)


@pytest.mark.parametrize("db", ["postgres"], indirect=True)  # SQLite lets no other write in between
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("meanwhile", [models.Model, Shelf])
def test_insert_race(db, first, second, late, monkeypatch, in_thread, meanwhile):
    """Of two inserts of the same row the later holder's stays, in any order."""
    mine, theirs = (first, second) if late else (second, first)
    looked = meanwhile._do_update

    def overtaken(self, *args):
        updated = looked(self, *args)
        if not updated and self.quantity == 1:  # before our INSERT
            monkeypatch.undo()
            in_thread(lambda: Shelf(code="x", quantity=2).save(lock=theirs, using=db)).result(20)
        return updated

    monkeypatch.setattr(meanwhile, "_do_update", overtaken)
    with transaction.atomic(using=db):
        with pytest.raises(StaleLock) if late else nullcontext():
            Shelf(code="x", quantity=1).save(lock=mine, using=db)
        [shelf] = Shelf.objects.using(db)
    assert (shelf.quantity, shelf.fence) == (2 if late else 1, second.fencing_token)


def test_saved_again_by_a_receiver(stock, first, second):
    """A write of a `post_save` receiver is under the lock of the `save()`."""

    def overtake(instance, **_kwargs):
        models.signals.post_save.disconnect(overtake, sender=Stock)
        Stock.objects.using(stock._state.db).fenced(second).update(quantity=9)
        instance.save(update_fields=["quantity"])

    models.signals.post_save.connect(overtake, sender=Stock)
    with pytest.raises(StaleLock):
        stock.save(lock=first)
    assert row(stock) == (9, second.fencing_token)


def test_other_conflicts_stay_what_they_are(stock, held):
    """A violated unique constraint raises IntegrityError, in a new row and in an old one."""
    options = {"using": stock._state.db, "lock": held()}
    for new, force_insert in (
        (Stock(sku="a"), False),
        (Stock(pk=stock.pk + 1, sku="a"), False),
        (Stock(pk=stock.pk), True),
    ):
        with pytest.raises(IntegrityError), transaction.atomic(using=stock._state.db):
            new.save(**options, force_insert=force_insert)


def test_deleted_row_is_not_brought_back(stock, first, second):
    """A late write does not insert a row again that the successor has deleted."""
    late = Stock.objects.using(stock._state.db).get(pk=stock.pk)
    stock.delete(lock=second)
    with pytest.raises(StaleLock, match="has been deleted") as refused:
        late.save(lock=first)
    assert refused.value.fence is None
    assert not Stock.objects.using(late._state.db).exists()


def test_delete(stock, held):
    """The holder deletes a row with its related rows."""
    Parcel.objects.using(stock._state.db).create(stock=stock, address="a")
    assert stock.delete(lock=held()) == (2, {"fencing.Parcel": 1, "fencing.Stock": 1})


def test_claimed_by_reading(stock, first, second):
    """Reading under the lock raises the fence, so that the predecessor can't write between read and write."""
    late = Stock.objects.using(stock._state.db).get(pk=stock.pk)
    stock.quantity = 0
    stock.refresh_from_db(lock=second)
    assert (stock.quantity, stock.fence) == (5, second.fencing_token)
    with pytest.raises(StaleLock):
        late.save(lock=first)
    with pytest.raises(StaleLock):
        late.refresh_from_db(lock=first)


def test_kept_lock(stock, backend):
    """A lock that is kept until the commit can be written under."""
    with transaction.atomic(using=stock._state.db):
        with lock("stock", fencing=True, release_on_commit=stock._state.db) as holder:
            stock.quantity = 1
            stock.save(lock=holder)
            token = holder.fencing_token
        with pytest.raises(LockNotHeld):
            stock.save(lock=holder)
    assert row(stock) == (1, token)


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("kind", MAKE)
def test_other_kinds(stock, backend, kind):
    """Other kinds of locks have growing tokens, too."""
    with new_lock(kind, backend, "x", fencing=True) as first:
        stock.save(lock=first)
        late = first.fencing_token
    with new_lock(kind, backend, "x", fencing=True) as second:
        stock.save(lock=second)
        assert stock.fence == second.fencing_token
        with pytest.raises(StaleLock):
            stock.save(lock=late)

    async def run():
        async with new_lock(kind, backend, "x", fencing=True) as third:
            await stock.asave(lock=third)
            await stock.arefresh_from_db(lock=third)
            assert await Stock.objects.using(stock._state.db).fenced(third).aupdate(quantity=1) == 1
            return third.fencing_token

    assert asyncio.run(run()) == row(stock)[1]


def test_fence_in_the_childs_table(db, first, second):
    """The parent's table, which is written first, is rolled back when the fence in the child's table refuses."""
    press = Press(title="old", force=1)
    press.save(lock=second, using=db)
    press.title, press.force = "late", 9
    with transaction.atomic(using=db):
        with pytest.raises(StaleLock):
            press.save(lock=first)
        [read] = Press.objects.using(db)
    assert (read.title, read.force) == ("old", 1)
    press.save(lock=second)
    assert Press.objects.using(db).get().title == "late"
