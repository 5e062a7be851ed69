"""A shop in one file: the URLs, the views, and a view that acquires its lock in the wrong place.

Each sold item is a row of a table. Their number is read on a connection outside the request's transaction, as behind a
router that sends reads to another database.
"""

import threading
from functools import wraps

from django.db import connections
from django.http import HttpResponse
from django.urls import path
from django.views import View

from django_redlock import lock
from django_redlock.decorators import locked_view


class Stage:
    """The events that a test waits for, and the steps that it delays."""

    def __init__(self) -> None:
        self.looked = threading.Semaphore(0)  # released by each request that has read the stock
        self.sold = threading.Event()  # the first request is about to commit
        self.go_on = threading.Event()  # and may


stage = Stage()


def sell(request, limit):
    """Sell one item if there is one: 201, or 410."""
    with connections["read"].cursor() as cursor:
        [taken] = cursor.execute("SELECT count(*) FROM sold").fetchone()
    stage.looked.release()
    if taken >= limit:
        return HttpResponse(status=410)
    with connections["write"].cursor() as cursor:
        cursor.execute("INSERT INTO sold DEFAULT VALUES")
    return HttpResponse(status=201)


def slow_to_commit(view):
    """Delay the end of the first selling request's transaction until the test lets it go on."""

    @wraps(view)
    def slow(request, *args, **kwargs):
        response = view(request, *args, **kwargs)
        if not stage.sold.is_set():
            stage.sold.set()
            stage.go_on.wait(60)
        return response

    return slow


@locked_view("sale", blocking_timeout=60)
@slow_to_commit
def buy(request, limit):
    return sell(request, limit)


@locked_view("sale", blocking_timeout=60)
class Buy(View):
    @slow_to_commit
    def dispatch(self, request, limit):
        return sell(request, limit)


@slow_to_commit
def buy_naively(request, limit):
    """Sell under a lock within the transaction, which is released before the commit."""
    with lock("sale", blocking_timeout=60):
        return sell(request, limit)


@slow_to_commit
def buy_kept(request, limit):
    """Sell under a lock within the transaction, which is kept until the commit."""
    with lock("sale", blocking_timeout=60, release_on_commit="write"):
        return sell(request, limit)


urlpatterns = [
    path("buy/function/<int:limit>/", buy),
    path("buy/class/<int:limit>/", Buy.as_view()),
    path("buy/naively/<int:limit>/", buy_naively),
    path("buy/kept/<int:limit>/", buy_kept),
]
