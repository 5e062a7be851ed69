"""`@locked_view`: names from the request, and views in Django's clients."""

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path as route

from django_redlock import lock, locks
from django_redlock.decorators import idempotent, locked_view
from tests.django.decorators.test_locked_view import VIEWS, in_both_styles

pytestmark = pytest.mark.usefixtures("stores")

get = RequestFactory().get


def test_names_from_the_request():
    """The request is a field of the name under any argument name, and positional arguments are found by name."""
    view = locked_view("cart:{request.method}:{req.path}:{sku}")(
        lambda req, sku: HttpResponse(f"{req.lock.name} {sku}")
    )
    assert view(get("/shop/"), "pear").content == b"cart:GET:/shop/:pear pear"


@pytest.mark.parametrize("decorate", [locked_view("call:{calls}"), idempotent(required=False)], ids=["lock", "key"])
def test_arguments_of_any_name(decorate):
    """The arguments of a view may have the names that the decorators use themselves."""
    view = decorate(lambda _request, calls, protected, proceed: HttpResponse(f"{calls} {protected} {proceed}"))
    request = RequestFactory().post("/shop/")
    assert view(request, calls=1, protected=2, proceed=3).content == b"1 2 3"


PATHS = [f"/{number}/pear/" for number in range(len(VIEWS))]


@pytest.fixture
def views(settings):
    """The URLs of views of each kind."""
    patterns = [route(f"{number}/<str:sku>/", view) for number, view in enumerate(VIEWS)]
    settings.ROOT_URLCONF = type("urls", (), {"urlpatterns": patterns})


@pytest.mark.parametrize("path", PATHS)
def test_request_in_the_client(client, views, path):
    """Sync and async views work with URL arguments and middleware under WSGI."""
    assert client.get(path).json() == {"lock": "stock:pear", "held": True}
    with lock("stock:pear"):
        assert client.get(path).status_code == 409


async def test_request_in_the_async_client(async_client, views):
    """Async and sync views work under ASGI."""
    for path in PATHS:
        assert (await async_client.get(path)).json() == {"lock": "stock:pear", "held": True}
    async with lock("stock:pear"):
        assert {(await async_client.get(path)).status_code for path in PATHS} == {409}
    await locks["default"].aclose()


@pytest.mark.django_db(transaction=True)
async def test_name_from_the_database_in_an_async_view(async_client, settings):
    """The name of an async view may contain the user, whom Django reads from the database at first use."""

    @locked_view("cart:{request.user.username}")
    async def view(request):
        return HttpResponse(request.lock.name)

    settings.ROOT_URLCONF = type("urls", (), {"urlpatterns": [route("", view)]})
    await async_client.aforce_login(await User.objects.acreate(username="ada"))
    assert (await async_client.get("/")).content == b"cart:ada"
    await locks["default"].aclose()


def test_name_that_cannot_be_one(client, views):
    """A URL that makes a name too long gives 400."""
    assert client.get(f"/0/{'x' * 600}/").status_code == 400


@in_both_styles
@pytest.mark.parametrize("field", ["{request.headers[X-Shop]}", "{request.GET[shop]}", "{request.COOKIES[shop]}"])
def test_name_from_what_the_request_lacks(client, settings, field, style, caplog):
    """A request without the header that the name needs gives 400, and the log says which."""
    view = locked_view(f"stock:{field}")(style(lambda request: HttpResponse(request.lock.name)))
    settings.ROOT_URLCONF = type("urls", (), {"urlpatterns": [route("", view)]})
    assert client.get("/").status_code == 400
    assert "has no 'shop'" in caplog.text.lower() or "x-shop" in caplog.text.lower()
    client.cookies["shop"] = "1"
    assert client.get("/?shop=1", headers={"X-Shop": "1"}).content == b"stock:1"
