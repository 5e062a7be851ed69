"""The warning for locks that are released within a transaction."""

import threading

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_redlock import lock, transactions
from tests.support.databases import sqlite_file

pytestmark = pytest.mark.usefixtures("stores")


@pytest.fixture(autouse=True)
def no_place_known(monkeypatch):
    """No place in the code has been warned of yet."""
    monkeypatch.setattr("django_redlock.transactions._places", set())


def warnings(caplog):
    """Return the warnings of `django_redlock.transactions`. Threads of other tests may write to other logs."""
    return [record.getMessage() for record in caplog.records if record.name == transactions.logger.name]


@pytest.mark.django_db(transaction=True)
class TestWarning:
    def test_once_for_each_place(self, caplog, using):
        """Each place in the code is warned of once, with file and line."""
        for _ in range(3):
            with transaction.atomic(), lock("stock", using):
                pass
        with transaction.atomic(), lock("stock", using):
            pass
        assert [f"{__file__}:" in warning for warning in warnings(caplog)] == [True, True]

    def test_in_a_new_thread(self, caplog, using):
        """A thread's own connection counts, whenever it is opened or reopened."""

        def work():
            for _ in range(2):
                with lock("stock", using):
                    pass
                assert len(warnings(caplog)) == len(seen)
                with transaction.atomic(), lock(f"stock {len(seen)}", using):
                    pass
                seen.append(warnings(caplog)[-1])
                places.clear()
                BaseDatabaseWrapper.close(connections["default"])  # SQLite's own does nothing to what is in memory

        seen, places = [], transactions._places
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(20)
        assert [f"'stock {number}'" in text for number, text in enumerate(seen)] == [True, True]

    def test_none_where_nothing_is_wrong(self, caplog, using):
        """Kept locks, locks around the transaction, and locks without a transaction give no warning."""
        with lock("stock", using), transaction.atomic():
            pass
        with transaction.atomic(), lock("stock", using, release_on_commit=True):
            pass
        assert warnings(caplog) == []


def test_no_warning_within_another_transaction(file, tmp_path, caplog, using):
    """A lock that names its database gives no warning because of another database's transaction."""
    with sqlite_file("other", tmp_path / "other.sqlite3"), transaction.atomic("other"):
        with transaction.atomic(file), lock("stock", using, release_on_commit=file):
            pass
        with lock("stock", using, release_on_commit=file):
            pass
        assert warnings(caplog) == []
        with lock("stock", using):
            pass
        assert "released within an open transaction" in warnings(caplog)[0]


def test_transaction_of_another_database(file, caplog, using):
    """``release_on_commit=True`` keeps no lock until the commit on another database than the default."""
    with transaction.atomic(file), lock("stock", using, release_on_commit=True) as held:
        pass
    with transaction.atomic(file), lock("stock", using, release_on_commit="default"):
        pass  # this one names its database
    assert not held.locked()
    [warning] = warnings(caplog)
    assert warning.endswith("use lock(..., release_on_commit='file'): True refers to 'default'")


@pytest.mark.django_db
def test_no_warning_for_the_transaction_of_a_test(caplog):
    """The transaction that TestCase puts around a test gives no warning."""
    with lock("stock"):
        assert connections["default"].in_atomic_block
    assert warnings(caplog) == []
