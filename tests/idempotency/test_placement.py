"""Where the decorator stands: on functions, classes and methods, beside other decorators; and bad options."""

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from django_redlock import locks
from django_redlock.decorators import idempotent, locked_view
from tests.idempotency.conftest import ALICE, as_django, ask, code, replayed
from tests.idempotency.models import Charge


def plain(_request):
    return HttpResponse(b"done")


async def coroutine(_request):
    return HttpResponse(b"done")


def busy(_request, _error):
    return HttpResponse(b"busy", status=200)


@pytest.mark.parametrize("place", ["class", "dispatch", "post", "url", "list"])
def test_class_based_views(options, place):
    """The decorator works on a class, its `dispatch`, a handler, around `as_view()`, and in a list of decorators."""
    decorator = idempotent(**options)

    class Pay(View):
        calls = 0

        def post(self, request):
            type(self).calls += 1
            return HttpResponse(str(self.calls))

    if place == "class":
        view = decorator(Pay).as_view()
    elif place == "url":
        view = decorator(Pay.as_view())
    elif place == "list":
        view = method_decorator([locked_view("stock"), decorator], name="dispatch")(Pay).as_view()
    else:
        view = method_decorator(decorator, name=place)(Pay).as_view()
    assert [ask(view).content for _ in range(2)] == [b"1", b"1"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"in_doubt": "maybe"}, '"refuse" or "run"'),
        ({"in_doubt": "run", "database": "default"}, "always known"),
        ({"scope": "user"}, "scope must be a function"),
        ({"max_answer": 0}, "positive number of bytes"),
        ({"max_answer": True}, "positive number of bytes"),
        ({"keep": 0}, "keep must be a positive number"),
        ({"keep": "1d"}, "keep must be a number"),
        ({"ttl": -1}, "ttl must be a positive number"),
        ({"ttl": 0.001}, "ttl must be at least"),
        ({"wait": -1}, "wait must be a positive number"),
        ({"headers": "Location"}, "headers must be a list"),
        ({"methods": "POST"}, "methods must be a list"),
        ({"timeout": 1}, "timeout"),
    ],
    ids=str,
)
def test_bad_options(bad, message):
    with pytest.raises((TypeError, ValueError), match=message):
        idempotent(**bad)


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda: idempotent(plain), "with parentheses"),
        (lambda: idempotent()(17), "is not a view"),
        (lambda: idempotent()(int), "has no as_view"),
        (lambda: idempotent()(View.dispatch), "is a method"),
        (lambda: idempotent()(idempotent()(plain)), "two idempotent"),
        (lambda: idempotent(database="default")(coroutine), "no transactions in async code"),
        (lambda: idempotent(database="default")(locked_view("x")(plain)), "above idempotent"),
    ],
)
def test_bad_places(decorate, message):
    with pytest.raises(TypeError, match=message):
        decorate()


def test_a_request_of_another_kind(stores):
    """A handler of Django REST framework, which gets another request, raises an error that names the right places."""
    with pytest.raises(TypeError, match=r"instead of a request.*on the class"):
        idempotent()(plain)(object())


def test_attributes_stay(stores):
    view = idempotent()(csrf_exempt(plain))
    assert view.csrf_exempt
    assert view.__name__ == "plain"


@pytest.mark.parametrize("status", [409, 303, busy])
def test_a_refused_lock_is_not_stored(new_store, status):
    """The response of ``on_conflict`` is not stored, with any status, because the view did not run."""
    view = idempotent(**new_store("default"))(locked_view("stock", on_conflict=status)(plain))
    with locks["default"].lock("stock"):
        assert ask(view).status_code == (200 if callable(status) else status)
    assert ask(view).content == b"done"


def test_app_is_missing(stores, settings):
    settings.INSTALLED_APPS = [each for each in settings.INSTALLED_APPS if each != "django_redlock.idempotency"]
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        ask(idempotent(database="default")(plain))


# ── ATOMIC_REQUESTS ──────────────────────────────────────────────────────────────────────────


def paying(alias, number=200):
    def view(_request):
        assert connections[alias].in_atomic_block
        Charge.objects.using(alias).create(order="1")
        return HttpResponse(status=number)

    return view


@pytest.mark.parametrize("with_lock", [False, True])
@pytest.mark.parametrize("kind", ["redis", "database"])
def test_the_answer_follows_the_commit(atomic_requests, kind, with_lock):
    """The transaction of ATOMIC_REQUESTS ends before the answer is stored, or with it, under any lock."""
    view = idempotent(**({"database": atomic_requests} if kind == "database" else {}))(paying(atomic_requests))
    view = as_django(locked_view("stock")(view) if with_lock else view)
    assert [replayed(ask(view)) for _ in range(2)] == [False, True]
    assert Charge.objects.using(atomic_requests).count() == 1


@pytest.mark.parametrize("decorate", [lambda view: view, locked_view("stock")], ids=["alone", "with_lock"])
def test_a_failing_commit_is_in_doubt(atomic_requests, decorate):
    """After an error at the commit the outcome is unknown: a repeat is refused and there is one charge."""

    def view(request):
        transaction.on_commit(lambda: 1 / 0, using=atomic_requests)
        return paying(atomic_requests)(request)

    view = as_django(idempotent()(decorate(view)))
    with pytest.raises(ZeroDivisionError):
        ask(view)
    assert code(ask(view)) == (409, "idempotency-outcome-unknown")
    assert Charge.objects.using(atomic_requests).count() == 1


@pytest.mark.parametrize("decorate", [lambda view: view, locked_view("stock")], ids=["alone", "with_lock"])
@pytest.mark.parametrize("kind", ["redis", "database"])
def test_success_that_is_rolled_back(atomic_requests, kind, decorate):
    """A view that reports success for work that ATOMIC_REQUESTS rolls back raises an error, on each store."""

    def view(request):
        response = paying(atomic_requests)(request)
        transaction.set_rollback(True, using=atomic_requests)
        return response

    view = idempotent(**({"database": atomic_requests} if kind == "database" else {}))(view)
    view = as_django(decorate(view))
    with pytest.raises(TransactionManagementError, match="can only be rolled back"):
        ask(view)
    assert Charge.objects.using(atomic_requests).count() == 0


def test_inside_the_transaction(atomic_requests):
    """On a handler, which is inside the transaction, an error says where to put the decorator."""

    @method_decorator(idempotent(), name="post")
    class Pay(View):
        def post(self, request):
            return HttpResponse()

    with pytest.raises(TypeError, match=r"outside of idempotent\(\)"):
        ask(as_django(Pay.as_view()))


def test_a_get_has_its_transaction(atomic_requests):
    """A request without a key has the transaction of ATOMIC_REQUESTS."""
    view = as_django(idempotent()(paying(atomic_requests)))
    assert view(RequestFactory().get("/")).status_code == 200
    assert ask(as_django(idempotent(required=False)(paying(atomic_requests))), key=None, user=ALICE).status_code == 200
