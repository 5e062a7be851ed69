"""`@locked_view`: functions, async functions and classes, and the response to a request without the lock."""

import asyncio
import logging
import threading
from functools import update_wrapper

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.utils.decorators import classonlymethod, method_decorator
from django.views import View
from redis import Redis

from django_redlock import lock, locks
from django_redlock.decorators import locked_view
from django_redlock.errors import LockDeadlock, LockLost, LockNotAcquired
from tests.support.locks import entry_of

pytestmark = pytest.mark.usefixtures("stores")

get, aget = RequestFactory().get, AsyncRequestFactory().get


def answer(request, *args, **kwargs):
    """Respond with the name of the lock, and whether it is held."""
    return JsonResponse({"lock": request.lock.name, "held": locks["default"].lock(request.lock.name).locked()})


protect = locked_view("stock:{sku}")


@protect
def function(request, sku="apple"):
    return answer(request)


@protect
async def afunction(request, sku="apple"):
    await asyncio.sleep(0)
    return await asyncio.to_thread(answer, request)


class Page(View):
    def get(self, request, sku):
        return answer(request)


class AsyncPage(View):
    async def get(self, request, sku):
        return await afunction.__wrapped__(request)


def places(page):
    """Return views with the decorator on the class, on its parent, on `dispatch` and on the handler."""
    on_class, on_dispatch, on_handler = (type(page.__name__, (page,), {"get": page.get}) for _ in range(3))
    decorated = [protect(on_class), type("Inherited", (on_class,), {})]
    decorated += [method_decorator(protect, name="dispatch")(on_dispatch), method_decorator(protect, "get")(on_handler)]
    return [each.as_view() for each in decorated]


class ViewSet:
    """A view set of Django REST framework: `as_view()` has arguments, and its result has `__wrapped__`."""

    @classonlymethod
    def as_view(cls, actions, **initkwargs):  # noqa: N805
        def view(request, **kwargs):
            self = cls(**initkwargs)
            self.get = getattr(self, actions["get"])
            return self.dispatch(request, **kwargs)

        view.cls = cls
        return update_wrapper(view, cls.dispatch, assigned=())

    def dispatch(self, request, **kwargs):
        return self.get(request, **kwargs)


@protect
class OnViewSet(ViewSet):
    def retrieve(self, request, sku):
        return answer(request)


VIEWS = [function, *places(Page), OnViewSet.as_view({"get": "retrieve"}), afunction, *places(AsyncPage)]


def called(view, name="sku", value="pear"):
    """Return the response of a sync or async view."""
    if not iscoroutinefunction(view):
        return view(get("/"), **{name: value})
    return asyncio.run(closing(view(aget("/"), **{name: value})))


def asynchronous(view):
    """Return the view as a coroutine function."""

    async def aview(request, **kwargs):
        return await asyncio.to_thread(view, request, **kwargs)

    return aview


in_both_styles = pytest.mark.parametrize("style", [lambda view: view, asynchronous], ids=["sync", "async"])


async def closing(work):
    """Run the coroutine, and close the connections of its event loop."""
    try:
        return await work
    finally:
        await locks["default"].aclose()


@pytest.mark.parametrize("view", VIEWS)
def test_holds_the_lock(view):
    """The view has the lock as `request.lock`, and the lock is free afterwards."""
    assert called(view).content == b'{"lock": "stock:pear", "held": true}'
    assert not lock("stock:pear").locked()


@pytest.mark.parametrize("view", VIEWS)
def test_conflict(view):
    """A held lock gives 409 with Retry-After, without the name of the holder."""
    with lock("stock:pear", ttl=20, owner="secret"):
        response = called(view)
        assert called(view, value="apple").status_code == 200
    assert response.status_code == 409
    assert 1 < int(response["Retry-After"]) <= 20
    assert response["Cache-Control"] == "no-store"
    assert b"secret" not in response.content


@pytest.mark.parametrize("view", VIEWS)
def test_store_down(view, settings, caplog):
    """Without a store the response is 503 with Retry-After, the cause is logged, and the view is not called."""
    settings.REDLOCK = {"default": {**settings.REDLOCK["default"], "LOCATION": "redis://127.0.0.1:1/0"}}
    response = called(view)
    assert response.status_code == 503
    assert int(response["Retry-After"]) >= 1
    mine = [record for record in caplog.records if record.thread == threading.get_ident()]
    [record] = [record for record in mine if record.name == "django_redlock"]
    assert record.levelno == logging.ERROR
    assert "GET /" in record.getMessage()


def test_retry_after_is_whole_seconds_and_one_at_least(settings, unique):
    """Retry-After is at least one second, with a default for a lease without an end."""
    still = entry_of("locmem.LocMemBackend", f"{unique} still", clock=lambda: 0.0)
    settings.REDLOCK = {**settings.REDLOCK, "still": still}
    with lock("stock", "still", ttl=0.95, auto_renew=False):
        assert locked_view("stock", using="still")(sync_view)(get("/"))["Retry-After"] == "1"
    key = lock("stock:forever").keys.lock
    with Redis.from_url(locks["default"].location) as client:
        client.set(key, "another program's")
        assert function(get("/"), "forever")["Retry-After"] == "5"


def test_waits_when_asked_to(own_thread):
    """With blocking_timeout a request waits for the lock."""
    answers, waiting = [], locked_view("stock", blocking_timeout=120)(sync_view)
    with lock("stock"):
        thread = own_thread(lambda: answers.append(waiting(get("/")).content))
        own_thread.until(lambda: locks["default"].describe("stock").waiters == 1)
    thread.join(20)
    assert answers == [b"view"]


@pytest.mark.parametrize("options", [{"blocking": False}, {"blocking_timeout": 0}])
def test_options_not_to_wait(options):
    with lock("stock"):
        assert locked_view("stock", **options)(sync_view)(get("/")).status_code == 409


def sync_view(request, **kwargs):
    return HttpResponse("view")


async_view = asynchronous(sync_view)


@pytest.mark.parametrize("view", [sync_view, async_view])
def test_on_conflict_status(view):
    """on_conflict chooses another status, with Retry-After."""
    with lock("stock"):
        response = called(locked_view("stock", on_conflict=429)(view))
    assert response.status_code == 429
    assert "Retry-After" in response


def explain(request, error):
    assert isinstance(error, LockNotAcquired)
    return HttpResponse(f"{request.path} {error.name} {error.retry_after > 0}", status=423)


async def aexplain(request, error):
    return explain(request, error)


@pytest.mark.parametrize(("view", "on_conflict"), [(sync_view, explain), (async_view, explain), (async_view, aexplain)])
def test_on_conflict_callable(view, on_conflict):
    """A function as on_conflict gets request and error, and may be async for an async view."""
    view = locked_view("stock", on_conflict=on_conflict)(view)
    with lock("stock"):
        response = called(view)
    assert (response.status_code, response.content) == (423, b"/ stock True")


@pytest.mark.parametrize("on_conflict", [None, "409", 99, 600, True, 409.0])
def test_bad_on_conflict(on_conflict):
    """An on_conflict that is neither a status nor a function is refused at decoration."""
    with pytest.raises(TypeError, match="on_conflict must be an HTTP status or a function"):
        locked_view("stock", on_conflict=on_conflict)


@in_both_styles
@pytest.mark.parametrize("around", ["", "cart"])
@pytest.mark.parametrize("fail", ["raise", "lose"])
def test_errors_of_the_view(fail, around, style):
    """An error of the view is raised and the locks are free; a lock lost in the view raises LockLost."""

    def body(_request, **_kwargs):
        if fail == "raise":
            raise LockNotAcquired("another lock: not our business")
        locks["default"].force_release("stock")
        return HttpResponse()

    view = locked_view("stock")(style(body))
    view = locked_view(around)(view) if around else view
    with pytest.raises(LockNotAcquired if fail == "raise" else LockLost):
        called(view)
    assert not lock("stock").locked()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_asks_for_a_lock_that_it_holds(colour):
    """A view that waits without limit for one of its own locks raises LockDeadlock, also with two decorators."""

    def waits(request, sku):
        lock("outer").acquire()

    async def awaits(request, sku):
        async with asyncio.timeout(5):  # in the view's own task
            await lock("outer").aacquire()

    with pytest.raises(LockDeadlock):
        called(locked_view("outer")(locked_view("inner")(waits if colour == "sync" else awaits)))
    assert not lock("outer").locked()


@pytest.mark.django_db  # the end of a response looks at the connections that other tests have opened
@pytest.mark.parametrize("ended", ["to the end", "closed"])
def test_stream(ended):
    """A view's lock is free while its response streams, and a lock of the stream is held to its end."""

    @locked_view("stock")
    def view(request):
        def rows():
            with lock("stream"):
                yield b"first"
                yield b"second"

        return StreamingHttpResponse(rows())

    response = view(get("/"))
    assert not lock("stock").locked()
    rows = iter(response)
    assert next(rows) == b"first"
    assert lock("stream").locked()
    if ended == "closed":
        response.close()
    else:
        assert list(rows) == [b"second"]
    assert not lock("stream").locked()


def test_unknown_name_at_decoration():
    """A field without an argument is an error at decoration, or, on a class, with the request."""
    with pytest.raises(TypeError, match="no argument 'skew'"):
        locked_view("stock:{skew}")(lambda request, sku: (request, sku))
    with pytest.raises(TypeError, match="needs 'skew', which this call does not have"):
        locked_view("stock:{skew}")(type("Page", (View,), {"get": answer})).as_view()(get("/"), sku="pear")


@pytest.mark.parametrize("decorated", [Page.get, type("Plain", (), {}), classmethod(print), None])
def test_refuses_what_is_no_view(decorated):
    """A decorated method or a class that is no view raises an error that says where to put the decorator."""
    with pytest.raises(TypeError, match="put locked_view\\(\\) on the view function, on the class"):
        locked_view("stock")(decorated)


def test_refuses_a_method_when_called():
    """A method whose first argument is not called `self` raises the error when it is called."""
    shop = type("Shop", (View,), {"get": locked_view("stock")(lambda _this, _request: None)})
    with pytest.raises(TypeError, match="got Shop instead of a request: put"):
        shop.as_view()(get("/"))


def test_settings_are_read_late(settings):
    view = locked_view("stock", using="later")(sync_view)
    settings.REDLOCK = {"later": settings.REDLOCK["memory"]}
    assert view(get("/")).content == b"view"
