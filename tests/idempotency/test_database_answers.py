"""Answers that are rows of the database, in the transaction of the view."""

import threading

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.utils import timezone

from django_redlock.decorators import idempotent
from django_redlock.idempotency.models import StoredAnswer
from tests.idempotency.conftest import Paused, ask, code, replayed, send
from tests.idempotency.models import Charge


def charge(alias):
    Charge.objects.using(alias).create(order="1")


def charges(alias):
    return Charge.objects.using(alias).count()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("way", ["raises", "500", "rollback"])
def test_nothing_is_done_without_an_answer(database, way):
    """With a database store a request without a stored answer has done nothing, and the repeat does the work once."""
    calls = []

    def view(_request):
        charge(database)
        calls.append(1)
        if len(calls) == 1:
            if way == "raises":
                raise ZeroDivisionError
            if way == "rollback":
                transaction.set_rollback(True, using=database)
            return HttpResponse(status=500 if way == "500" else 200)
        return HttpResponse(b"done")

    view = idempotent(database=database)(view)
    try:
        ask(view)
    except ZeroDivisionError:
        assert way == "raises"
    assert charges(database) == 0
    assert [ask(view).content for _ in range(2)] == [b"done", b"done"]
    assert charges(database) == 1


def test_without_the_lock(database, pool):
    """While Redis is down repeats wait in the database for the first request and get its answer."""
    paused, barrier = Paused(), threading.Barrier(4)

    def work(request):
        charge(database)
        return paused(request)

    view = idempotent(database=database, using="broken")(work)

    def late():
        barrier.wait(60)
        return send(view)

    first = pool.submit(send, view)
    try:
        assert paused.entered.wait(60)
        others = [pool.submit(late) for _ in range(3)]
        barrier.wait(60)
    finally:
        paused.go.set()
    assert first.result(60).content == b"done"
    assert [replayed(each.result(60)) for each in others] == [True] * 3
    assert (paused.calls, charges(database)) == (1, 1)


def test_the_loser_of_a_race_gets_the_answer(database, pool):
    """Of requests that begin at once without a lock one runs, and the others get its answer."""
    barrier = threading.Barrier(4)

    def work(_request):
        charge(database)
        return HttpResponse(b"done")

    view = idempotent(database=database, using="broken")(work)

    def one():
        barrier.wait(60)
        return send(view)

    answers = [each.result(60) for each in [pool.submit(one) for _ in range(4)]]
    assert [each.content for each in answers] == [b"done"] * 4
    assert sorted(map(replayed, answers)) == [False, True, True, True]
    assert charges(database) == 1


def test_the_answer_is_read_back(database):
    """Bytes and headers of an answer are the same when read from each kind of database."""
    view = idempotent(database=database)(lambda _request: HttpResponse(b"\x00\xff", headers={"Location": "/1"}))
    ask(view)
    again = ask(view)
    assert (replayed(again), again.content, again["Location"]) == (True, b"\x00\xff", "/1")
    assert code(ask(view, {"other": 1})) == (422, "idempotency-key-reused")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_row_is_kept_from_its_end_on(database):
    """The answer of a view that runs for longer than `keep` is stored in the database."""

    def view(_request):
        StoredAnswer.objects.using(database).update(expires_at=timezone.now())
        charge(database)
        return HttpResponse(b"done")

    view = idempotent(database=database)(view)
    assert ask(view).content == b"done"
    assert replayed(ask(view))
    assert charges(database) == 1
