"""`objects.fenced(held)`."""

import asyncio

import pytest
from django.db import connections, transaction
from django.db.models import F

from django_redlock.errors import LockNotHeld, StaleLock
from tests.fencing.models import Account, Parcel, Press, Savings, Shelf, Shop, Stock
from tests.support.databases import routed, sqlite_file
from tests.support.service import poll


@pytest.fixture
def stocks(db):
    """All stock: two rows of one shop."""
    shop = Shop.objects.using(db).create(name="ours")
    Stock.objects.using(db).bulk_create([Stock(sku=sku, quantity=5, shop=shop) for sku in "ab"])
    return Stock.objects.using(db).order_by("sku")


@pytest.fixture
def half_later(stocks, first, second):
    """Two rows, the second of which a later holder has written."""
    stocks.filter(sku="b").fenced(second).update(quantity=9)
    return first


def rows(stocks):
    return list(stocks.values_list("quantity", "fence"))


def test_update(stocks, held):
    """update() writes the values and the token, supports expressions and conditions, and returns the number of rows."""
    holder = held()
    assert stocks.fenced(holder).update(quantity=F("quantity") - 1) == 2
    assert stocks.filter(quantity=5).fenced(holder).update(quantity=0) == 0
    assert stocks.fenced(holder).filter(sku="b").exclude(quantity=3).update(quantity=7) == 1
    assert rows(stocks) == [(4, holder.fencing_token), (7, holder.fencing_token)]


WRITES = [
    lambda fenced, _both: fenced.update(quantity=0),
    lambda fenced, _both: fenced.filter(shop__name="ours").update(quantity=0),
    lambda fenced, _both: fenced.delete(),
    lambda fenced, _both: fenced.filter(shop__name="ours").delete(),
    lambda fenced, both: fenced.bulk_update(both, ["quantity"]),
    lambda fenced, _both: fenced.update_or_create({"quantity": 0}, sku="b"),
    lambda fenced, _both: fenced.claim(sku="b"),
]


@pytest.mark.parametrize("late", WRITES)
def test_all_or_nothing(stocks, half_later, late):
    """If one row was written by a later holder nothing is written, and the transaction around it can go on."""
    before = rows(stocks)
    with transaction.atomic(using=stocks.db):
        with pytest.raises(StaleLock) as refused:
            late(stocks.fenced(half_later), [Stock(pk=each.pk, quantity=0) for each in stocks])
        assert (refused.value.token, refused.value.fence) == (half_later.fencing_token, before[1][1])
        assert rows(stocks) == before


def test_replica(stocks, half_later, settings, tmp_path):
    """With a router, rows under a lock are read from the database that is written."""
    before, both = rows(stocks), [Stock(pk=each.pk, quantity=0) for each in stocks]
    settings.DATABASE_ROUTERS = [routed(stocks.db, read="replica")]
    with sqlite_file("replica", tmp_path / "replica.sqlite3"), transaction.atomic(using=stocks.db):
        for late in WRITES:
            with pytest.raises(StaleLock):
                late(Stock.objects.fenced(half_later), both)
        assert connections["replica"].connection is None
        assert rows(stocks) == before


def test_rows_that_are_not_selected(stocks, half_later):
    """A row that was written later does not matter."""
    assert stocks.filter(sku="a").fenced(half_later).update(quantity=0) == 1
    assert stocks.filter(shop__name="theirs").fenced(half_later).update(quantity=0) == 0


@pytest.fixture
def overtaken(db, in_thread):
    """`overtaken(late, later)`: let `late` wait for a row that `later` is writing, and return the outcome."""

    def waits():
        with connections[db].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            return cursor.fetchone()[0]

    def run(late, later):
        with transaction.atomic(using=db):
            later()
            answer = in_thread(late)
            poll(waits, timeout=20, what="the late UPDATE to wait for the row")
        return answer.result(20)

    return run


@pytest.mark.parametrize("db", ["postgres"], indirect=True)  # SQLite has one writer at a time
@pytest.mark.parametrize("joined", [False, True])
def test_waits_for_the_row_and_looks_again(stocks, held, overtaken, joined):
    """A late UPDATE that waits for the row of its successor's UPDATE raises StaleLock."""
    late, later = (stocks.fenced(held()) for _ in range(2))
    chosen = late.filter(shop__name="ours") if joined else late
    with pytest.raises(StaleLock):
        overtaken(lambda: chosen.update(quantity=0), lambda: later.update(quantity=9))
    assert {quantity for quantity, _ in rows(stocks)} == {9}


@pytest.mark.parametrize("db", ["postgres"], indirect=True)
def test_waits_for_a_row_in_two_tables(db, held, overtaken):
    """A late UPDATE of two tables that waits for its successor raises StaleLock."""
    Press(title="old", force=1).save(using=db)
    late, later = (Press.objects.using(db).fenced(held()) for _ in range(2))
    with pytest.raises(StaleLock):
        overtaken(lambda: late.update(title="late", force=0), lambda: later.update(force=9))
    assert later.values_list("title", "force").get() == ("old", 9)


def test_delete(stocks, held):
    """delete() deletes the rows with their related rows, and returns the counts."""
    Parcel.objects.using(stocks.db).create(stock=stocks[0], address="x")
    assert stocks.fenced(held()).delete() == (3, {"fencing.Parcel": 1, "fencing.Stock": 2})


def test_creating(db, held):
    """Created rows have the fence, and `get_or_create` leaves an existing row as it is."""
    holder = held()
    fenced = Stock.objects.using(db).fenced(holder)
    made = [fenced.create(sku="a"), *fenced.bulk_create([Stock(sku="b"), Stock(sku="c")])]
    made += [fenced.get_or_create(sku="d")[0], fenced.update_or_create({"quantity": 1}, sku="e")[0]]
    assert {each.fence for each in made} == {holder.fencing_token}
    assert set(fenced.values_list("fence", flat=True)) == {holder.fencing_token}
    assert fenced.get_or_create({"quantity": 9}, sku="a") == (made[0], False)
    assert fenced.update_or_create({"quantity": 2}, sku="a") == (made[0], False)
    assert fenced.get(sku="a").quantity == 2


def test_unchecked_writes_are_refused(db, held):
    """`bulk_create(update_conflicts=True)`, which has no condition, and an explicit fence are refused."""
    fenced = Shelf.objects.using(db).fenced(held())
    with pytest.raises(TypeError, match="without looking"):
        fenced.bulk_create([Shelf(code="x")], update_conflicts=True, update_fields=["quantity"], unique_fields=["code"])
    with pytest.raises(TypeError, match="fence is set by the lock"):
        fenced.update(fence=1)


def test_claim(stocks, first, second):
    """claim() reads one object as `get()` does, with its errors."""
    fenced = stocks.fenced(second)
    assert fenced.claim(sku="a").fence == second.fencing_token
    with pytest.raises(Stock.DoesNotExist):
        fenced.claim(sku="z")
    with pytest.raises(Stock.MultipleObjectsReturned):
        fenced.claim()
    assert rows(stocks) == [(5, second.fencing_token), (5, 0)]
    with pytest.raises(LockNotHeld):
        stocks.claim(sku="a")
    with pytest.raises(StaleLock):
        stocks.fenced(first).claim(sku="a")


def test_lock_that_ends_meanwhile(stocks, held):
    """The lock is checked at each write, not only when the queryset is created."""
    holder = held()
    fenced = stocks.fenced(holder)
    holder.release()
    for write in (lambda: fenced.update(quantity=1), fenced.delete, lambda: fenced.create(sku="x"), fenced.claim):
        with pytest.raises(LockNotHeld):
            write()


def test_without_lock(stocks, held):
    """Without `fenced()` writes are Django's own, and leave the fence alone."""
    holder = held()
    stocks.fenced(holder).update(quantity=1)
    stocks.update(quantity=2)
    stock = stocks[0]
    stock.quantity = 3
    stocks.bulk_update([stock], ["quantity"])
    assert rows(stocks) == [(3, holder.fencing_token), (2, holder.fencing_token)]
    assert stocks.update_or_create({"quantity": 1}, sku="a")[1] is False
    stocks.delete()


def test_asyncio(stocks, first, second):
    """The async methods check the fence, too."""

    async def run():
        fenced, late = stocks.fenced(second), stocks.fenced(first)
        assert await fenced.aupdate(quantity=1) == 2
        assert (await fenced.aclaim(sku="a")).quantity == 1
        assert (await fenced.aget_or_create(sku="c"))[0].fence == second.fencing_token
        for write in (late.aupdate(quantity=2), late.adelete()):
            with pytest.raises(StaleLock):
                await write
        return await fenced.adelete()

    assert asyncio.run(run()) == (3, {"fencing.Stock": 3})


def test_fence_in_the_parents_table(db, first, second):
    """With multi-table inheritance the last holder writes both tables, and a former one neither."""
    for number in (1, 2):
        Savings(number=number, balance=10, rate=1).save(using=db)
    savings = Savings.objects.using(db).order_by("number")
    read = savings.values_list("balance", "rate", "fence")
    savings.filter(number=2).fenced(second).update(rate=2)
    for late in (
        lambda: savings.fenced(first).update(rate=9),
        lambda: savings.fenced(first).update(balance=9, rate=9),
        lambda: savings.fenced(first).delete(),
        lambda: savings.get(number=2).save(lock=first, update_fields=["rate"]),
    ):
        with pytest.raises(StaleLock):
            late()
    assert list(read.all()) == [(10, 1, 0), (10, 2, second.fencing_token)]
    fenced, token = savings.fenced(second), second.fencing_token
    assert fenced.update(balance=1, rate=3) == 2
    one = fenced.claim(number=1)
    one.rate = 4
    one.save(lock=second)
    assert list(read.all()) == [(1, 4, token), (1, 3, token)]
    assert fenced.delete()[1] == {"fencing.Savings": 2, "fencing.Account": 2}


class TestRequired:
    """`fence_required = True`: writes need a lock."""

    def test_refused(self, db):
        """Existing rows can't be written without a lock in any way, and new ones can be created."""
        account = Account.objects.using(db).create(number=1, balance=5)
        accounts = Account.objects.using(db)
        for forgotten in (
            account.save,
            account.delete,
            lambda: accounts.update(balance=0),
            lambda: accounts.all().delete(),
            lambda: accounts.bulk_update([account], ["balance"]),
            lambda: accounts.update_or_create({"balance": 0}, number=1),
            lambda: Account(pk=account.pk, balance=0).save(using=db, update_fields=["balance"]),
            lambda: Account(pk=account.pk, number=1).save(using=db, force_update=True),
        ):
            with pytest.raises(LockNotHeld, match=r"fencing\.Account.* must be written under a lock"):
                forgotten()
        with pytest.raises(TypeError, match="without looking"):
            accounts.bulk_create([account], update_conflicts=True, update_fields=["balance"], unique_fields=["number"])
        assert accounts.get().balance == 5

    def test_allowed(self, db, held):
        """With the lock all writes work, and without it new rows can be created with any key."""
        holder = held()
        Account(pk=7, number=1).save(using=db)
        accounts = Account.objects.using(db)
        accounts.bulk_create([Account(number=2)])
        one = accounts.fenced(holder).claim(pk=7)
        one.balance = 1
        one.save(lock=holder)
        assert accounts.fenced(holder).update(balance=2) == 2
        assert one.delete(lock=holder)[0] == 1
