"""Answers that are rows of the database, in the transaction of the view."""

import contextlib
import threading
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connections, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpResponse
from django.utils import timezone

from django_redlock.decorators import idempotent
from django_redlock.idempotency.models import StoredAnswer
from tests.django.management.command_result import Done
from tests.idempotency.conftest import Paused, ask, code, replayed, send
from tests.idempotency.models import Charge
from tests.support.service import poll


def charge(alias):
    Charge.objects.using(alias).create(order="1")


def charges(alias):
    return Charge.objects.using(alias).count()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("way", ["raises", "500", "404", "rollback", "caught"])
def test_nothing_is_done_without_an_answer(database, way):
    """With a database store a request without a stored answer has done nothing, and the repeat does the work once."""
    calls = []

    def view(_request):
        charge(database)
        calls.append(1)
        if len(calls) == 1:
            if way == "raises":
                raise ZeroDivisionError
            if way in ("rollback", "404"):
                transaction.set_rollback(True, using=database)
            if way == "caught":
                with contextlib.suppress(IntegrityError):
                    Charge.objects.using(database).create(pk=Charge.objects.using(database).get().pk)
            return HttpResponse(status=int(way) if way.isdigit() else 201)
        return HttpResponse(b"done")

    view = idempotent(database=database)(view)
    if way.isdigit():
        assert ask(view).status_code == int(way)
    else:
        with pytest.raises(ZeroDivisionError if way == "raises" else TransactionManagementError) as caught:
            ask(view)
        assert way == "raises" or "status 201, but its transaction" in str(caught.value)
    assert charges(database) == 0
    assert [ask(view).content for _ in range(2)] == [b"done", b"done"]
    assert charges(database) == 1


def started(pool, view, number=3):
    """Send requests in other threads. Returns their futures when each is about to be sent."""
    barrier = threading.Barrier(number + 1)

    def one():
        barrier.wait(60)
        return send(view)

    futures = [pool.submit(one) for _ in range(number)]
    barrier.wait(60)
    return futures


def test_without_the_lock(database, pool):
    """While Redis is down repeats wait in the database for the first request and get its answer."""
    paused = Paused()

    def work(request):
        charge(database)
        return paused(request)

    view = idempotent(database=database, using="broken")(work)
    first = pool.submit(send, view)
    try:
        assert paused.entered.wait(60)
        others = started(pool, view)
    finally:
        paused.go.set()
    assert first.result(60).content == b"done"
    assert [replayed(each.result(60)) for each in others] == [True] * 3
    assert (paused.calls, charges(database)) == (1, 1)


def test_the_loser_of_a_race_gets_the_answer(database, pool):
    """Of requests that begin at once without a lock one runs, and the others get its answer."""

    def work(_request):
        charge(database)
        return HttpResponse(b"done")

    answers = [each.result(60) for each in started(pool, idempotent(database=database, using="broken")(work), 4)]
    assert [each.content for each in answers] == [b"done"] * 4
    assert sorted(map(replayed, answers)) == [False, True, True, True]
    assert charges(database) == 1


def test_the_answer_is_read_back(database):
    view = idempotent(database=database)(lambda _request: HttpResponse(b"\x00\xff", headers={"Location": "/1"}))
    ask(view)
    again = ask(view)
    assert (replayed(again), again.content, again["Location"]) == (True, b"\x00\xff", "/1")
    assert code(ask(view, {"other": 1})) == (422, "idempotency-key-reused")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_row_is_kept_from_its_end_on(database):

    def view(_request):
        StoredAnswer.objects.using(database).update(expires_at=timezone.now())
        charge(database)
        return HttpResponse(b"done")

    view = idempotent(database=database)(view)
    assert ask(view).content == b"done"
    assert replayed(ask(view))
    assert charges(database) == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_row_that_is_refused(database, caplog):
    """If the database refuses the row of a request, the view does not run: 503 with Retry-After, and a logged error."""

    def view(_request):
        charge(database)
        return HttpResponse(b"done")

    view = idempotent(database=database)(view)
    with connections[database].cursor() as cursor:
        table = StoredAnswer._meta.db_table
        cursor.execute(f"CREATE TRIGGER closed BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'full'); END")
        refused = ask(view)
        assert (*code(refused), refused["Retry-After"]) == (503, "idempotency-store-unavailable", "5")
        assert "POST /pay: the row of the request can't be written: full" in caplog.text
        assert charges(database) == 0
        cursor.execute("DROP TRIGGER closed")
    assert ask(view).content == b"done"
    assert charges(database) == 1


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_autocommit_is_off(database):
    """A database with autocommit off is refused: nothing would commit the work that the answer reports as done."""
    connections[database].set_autocommit(False)
    with pytest.raises(ImproperlyConfigured, match="autocommit"):
        ask(idempotent(database=database)(lambda _request: HttpResponse()))
    connections[database].set_autocommit(True)


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
@pytest.mark.parametrize("end", ["rolls back", "lasts"])
def test_a_row_in_use(database, mariadb, pool, end):
    """MariaDB gives up waiting for a row (1205), or finds a deadlock of those who wait (1213): 503 with Retry-After."""
    paused = Paused()

    def work(request):
        paused(request)
        if end == "rolls back" and paused.calls == 1:
            raise ZeroDivisionError
        charge(database)
        return HttpResponse(b"done")

    view = idempotent(database=database, using="broken")(work)
    mariadb.query(f"SET GLOBAL innodb_lock_wait_timeout = {1 if end == 'lasts' else 200}")  # of new connections
    first = pool.submit(send, view)
    assert paused.entered.wait(60)
    others = started(pool, view)
    if end == "rolls back":
        poll(lambda: row_waits(database) == 3, timeout=60, what="three repeats that wait")
        paused.go.set()
    answers = [each.result(60) for each in others]
    paused.go.set()
    refused = [each for each in answers if each.status_code != 200]
    assert {code(each) for each in refused} <= {(503, "idempotency-store-unavailable")}
    assert all(each["Retry-After"] == "5" for each in refused)
    if end == "lasts":
        assert len(refused) == 3
        assert first.result(60).content == b"done"
    else:
        with pytest.raises(ZeroDivisionError):
            first.result(60)
    assert replayed(ask(view))
    assert charges(database) == 1


def row_waits(alias):
    with connections[alias].cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return int(cursor.fetchone()[1])


# ── redlock_idempotency_prune, which removes answers that have expired, and no others ────────


@pytest.fixture
def rows(database):
    """Seven answers in the database, five of them expired."""
    rows = StoredAnswer.objects.using(database)
    for number in range(7):
        expires_at = timezone.now() + timedelta(minutes=1 if number < 2 else -1)
        rows.create(name=str(number), fingerprint="f", expires_at=expires_at)
    return rows


def prune(database, *words):
    return Done("redlock_idempotency_prune", "--database", database, *words).out


@pytest.mark.parametrize("words", [(), ("--batch", "2")], ids=str)
def test_prune(database, rows, words):
    assert prune(database, *words) == "5 expired answers removed\n"
    assert sorted(rows.values_list("name", flat=True)) == ["0", "1"]
    assert prune(database) == "0 expired answers removed\n"


def test_dry_run(database, rows):
    assert prune(database, "--dry-run") == "5 expired answers\n"
    assert rows.count() == 7


@pytest.mark.parametrize("words", [("--batch", "0"), ("--batch", "x"), ("--database", "nowhere")])
def test_bad_options(words):
    with pytest.raises(CommandError):
        call_command("redlock_idempotency_prune", *words)
