"""With ATOMIC_REQUESTS the lock outlasts the transaction: over HTTP, in threads, with a database file.

Each test sells a single item. When the second request arrives, the first one has sold it and is about to commit.
"""

import contextlib
import threading
from functools import partial
from http.client import HTTPConnection

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.db import connections, transaction
from django.http import HttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

from django_redlock import lock, locks
from django_redlock.decorators import idempotent, locked_view
from django_redlock.errors import LockLost
from django_redlock.signals import lock_released
from tests.django.decorators import sale
from tests.django.transactions.kept_locks import end_lease
from tests.support.databases import sqlite_file
from tests.support.service import poll

pytestmark = pytest.mark.usefixtures("stores")


Handler = type("Quiet", (WSGIRequestHandler,), {"log_message": lambda *_: None})


class Server(ThreadedWSGIServer):
    daemon_threads = False  # server_close() waits for all threads, which close their connections after the response


@pytest.fixture
def database(tmp_path, django_db_blocker):
    """`write`, with ATOMIC_REQUESTS, and `read`, without: one file with an empty table."""
    path = tmp_path / "sale.sqlite3"
    with django_db_blocker.unblock(), sqlite_file("write", path, ATOMIC_REQUESTS=True), sqlite_file("read", path):
        with connections["write"].cursor() as cursor:
            cursor.execute("CREATE TABLE sold (id INTEGER PRIMARY KEY)")
        yield lambda: connections["read"].cursor().execute("SELECT count(*) FROM sold").fetchone()[0]


@pytest.fixture
def stage(monkeypatch):
    stage = sale.Stage()
    monkeypatch.setattr(sale, "stage", stage)
    yield stage
    stage.go_on.set()


@pytest.fixture
def shop(settings, database, stage):
    """`shop("function")` buys from that view and returns the outcome."""
    settings.ROOT_URLCONF, settings.MIDDLEWARE, settings.ALLOWED_HOSTS = "tests.django.decorators.sale", [], ["*"]
    server = Server(("127.0.0.1", 0), Handler)
    server.set_app(WSGIHandler())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def buy(how, limit=1):
        with contextlib.closing(HTTPConnection("127.0.0.1", server.server_port, timeout=60)) as connection:
            connection.request("GET", f"/buy/{how}/{limit}/")
            return connection.getresponse().reason

    yield buy
    server.shutdown()
    thread.join()
    server.server_close()


def two_buyers(shop, stage, own_thread, how):
    """Send two requests; the second reads the stock before the first has committed, or waits for the lock."""
    answers = []
    threads = [own_thread(lambda: answers.append(shop(how)))]
    assert stage.sold.wait(60)
    assert stage.looked.acquire(timeout=60)
    threads.append(own_thread(lambda: answers.append(shop(how))))

    def second_is_there():
        held = locks["default"].describe("sale")
        return (held is not None and held.waiters == 1) or stage.looked.acquire(blocking=False)

    poll(second_is_there, timeout=40, what="the second buyer")
    stage.go_on.set()
    for thread in threads:
        thread.join(60)
    return sorted(answers)


@pytest.mark.parametrize("how", ["function", "class", "kept"])
def test_sells_what_there_is(shop, stage, own_thread, database, how):
    """The second request gets the lock after the commit of the first, and sees that nothing is left."""
    assert two_buyers(shop, stage, own_thread, how) == ["Created", "Gone"]
    assert database() == 1


def test_oversells_with_the_lock_inside_the_transaction(shop, stage, own_thread, database):
    """Control: with a lock that is released before the commit one item is sold twice."""
    assert two_buyers(shop, stage, own_thread, "naively") == ["Created", "Created"]
    assert database() == 2


# ── details, without a server ────────────────────────────────────────────────────────────────


def respond(view, request=None):
    """Call a view as Django's handler does."""
    return WSGIHandler().make_view_atomic(view)(request or RequestFactory().get("/"))


def state(request, **kwargs):
    """Respond with the databases that are in a transaction."""
    return HttpResponse(" ".join(alias for alias in ("write", "read") if connections[alias].in_atomic_block))


class OnDispatch(View):
    def get(self, request):
        return state(request)


VIEWS = {
    "function": locked_view("stock")(state),
    "two locks": locked_view("stock")(locked_view("shelf")(state)),
    "as_view": locked_view("stock")(OnDispatch.as_view()),
    "class": locked_view("stock")(type("OnClass", (OnDispatch,), {})).as_view(),
    "dispatch": method_decorator(locked_view("stock"), name="dispatch")(type("D", (OnDispatch,), {})).as_view(),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_transaction_is_open_in_the_view(database, view):
    """ATOMIC_REQUESTS opens a transaction within the lock."""
    assert respond(view).content == b"write"


def test_several_databases(tmp_path, database):
    """The transactions of all databases with ATOMIC_REQUESTS are over when the lock is released."""
    seen = []

    def see(*_, **__):
        seen.append([each for each in ("write", "archive") if connections[each].in_atomic_block])
        return HttpResponse()

    with sqlite_file("archive", tmp_path / "archive.sqlite3", ATOMIC_REQUESTS=True):
        lock_released.connect(see)
        try:
            respond(locked_view("stock")(see))
        finally:
            lock_released.disconnect(see)
    assert seen == [["write", "archive"], []]


DECORATORS = [locked_view("stock"), idempotent(required=False)]
NO_TRANSACTION = transaction.non_atomic_requests(using="write")


@pytest.mark.parametrize("decorate", DECORATORS, ids=["locked", "idempotent"])
@pytest.mark.parametrize("place", ["function", "list", "dispatch"])
def test_non_atomic_requests(database, decorate, place):
    """Below the decorator, non_atomic_requests opts out of the transaction."""
    page = type("Page", (OnDispatch,), {})
    if place == "function":
        view = decorate(NO_TRANSACTION(partial(state)))
    elif place == "list":
        view = method_decorator([decorate, NO_TRANSACTION], name="dispatch")(page).as_view()
    else:
        page = method_decorator(NO_TRANSACTION, name="dispatch")(page)
        view = method_decorator(decorate, name="dispatch")(page).as_view()
    assert respond(view).content == b""


@pytest.mark.parametrize(
    "opt_out",
    [
        lambda decorate, _page: NO_TRANSACTION(decorate(state)),
        lambda _decorate, page: NO_TRANSACTION(page.as_view()),
        lambda _decorate, page: respond(method_decorator(NO_TRANSACTION, name="dispatch")(page).as_view()),
    ],
    ids=["function", "as_view", "dispatch"],
)
@pytest.mark.parametrize("decorate", DECORATORS, ids=["locked", "idempotent"])
def test_non_atomic_requests_above(database, decorate, opt_out):
    """Above the decorator it is an error, because it would have no effect, or count for other views of the class."""
    page = method_decorator(decorate, name="dispatch")(type("Page", (OnDispatch,), {}))
    with pytest.raises(TypeError, match=r"put transaction\.non_atomic_requests below"):
        opt_out(decorate, page)


@pytest.mark.parametrize("on_lost", ["raise", "warn"])
def test_lost_lock_rolls_back(database, on_lost):
    """A view that loses its lock raises LockLost and is rolled back, unless on_lost says otherwise."""

    @locked_view("stock", auto_renew=False, on_lost=on_lost)
    def view(request):
        connections["write"].cursor().execute("INSERT INTO sold DEFAULT VALUES")
        end_lease(request.lock)
        return HttpResponse()

    if on_lost == "raise":
        with pytest.raises(LockLost):
            respond(view)
    else:
        respond(view)
    assert database() == (on_lost == "warn")


def test_refused_request_opens_no_transaction(database):
    with lock("stock"):
        connections["write"].close()
        assert respond(VIEWS["function"]).status_code == 409
        assert connections["write"].connection is None


def test_wrong_place(database):
    """On a handler method, where the transaction would be outside the lock, an error names the right place."""
    page = method_decorator(locked_view("stock"), name="get")(type("Page", (OnDispatch,), {"get": OnDispatch.get}))
    with pytest.raises(TypeError, match=r"ATOMIC_REQUESTS on 'write' is outside of locked_view\(\): put"):
        respond(page.as_view())


async def test_async_view(database):
    """An async view with ATOMIC_REQUESTS raises Django's own error, and works if it has opted out."""

    async def view(request):
        return HttpResponse(request.lock.name)

    request = AsyncRequestFactory().get("/")
    with pytest.raises(RuntimeError, match="ATOMIC_REQUESTS with async views"):
        await respond(locked_view("stock")(view), request)
    assert not await lock("stock").alocked()
    assert (await respond(locked_view("stock")(NO_TRANSACTION(view)), request)).content == b"stock"
