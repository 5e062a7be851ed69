"""The first request runs the view, and its repeats get the stored answer, on every store."""

import io
import itertools
import json
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.http import FileResponse, HttpResponse, HttpResponseRedirect, JsonResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.test import RequestFactory
from django.utils.functional import SimpleLazyObject

from django_redlock.decorators import idempotent
from django_redlock.idempotency.answers import AnswerNotStorable
from tests.idempotency.conftest import ALICE, BOB, ask, code, replayed


@pytest.fixture
def pay(options):
    """`pay(**more)`: a view that counts its calls and responds with the number."""

    def make(respond=None, **more):
        numbers = itertools.count(1)

        @idempotent(**options, **more)
        def view(request):
            number = next(numbers)
            return respond(request, number) if respond else JsonResponse({"charge": number}, status=201)

        return view

    return make


def test_repeat(pay):
    """A repeat gets status and body of the first answer, and is marked as a replay."""
    view = pay()
    first, second = ask(view, {"sku": 1}), ask(view, {"sku": 1})
    assert (first.status_code, first.content) == (201, b'{"charge": 1}')
    assert (second.status_code, second.content) == (201, b'{"charge": 1}')
    assert second["Content-Type"] == "application/json"
    assert (replayed(first), replayed(second)) == (False, True)


def by_client(request):
    return request.headers.get("X-Client")


@pytest.mark.parametrize(
    ("options_of_view", "requests", "charges"),
    [
        ({}, [{}, {"key": '"k2"'}, {"key": "k2"}], [1, 2, 2]),  # quotes around a key make no difference
        ({}, [{"user": ALICE}, {"user": BOB}], [1, 2]),  # so no user sees another's answer
        ({"required": False}, [{"key": None}, {"key": None}], [1, 2]),
        ({}, [{"method": "GET", "key": key} for key in (None, '"k"', '"k"')], [1, 2, 3]),  # needs no key
        ({"scope": by_client}, [{"HTTP_X_CLIENT": name, "user": None} for name in "aba"], [1, 2, 1]),
    ],
    ids=["keys", "users", "required", "GET", "scope"],
)
def test_which_requests_are_the_same(pay, options_of_view, requests, charges):
    view = pay(**options_of_view)
    assert [json.loads(ask(view, **each).content)["charge"] for each in requests] == charges


@pytest.mark.parametrize("change", [{"body": {"sku": 2}}, {"path": "/pay?now=1"}, {"method": "PATCH"}], ids=str)
def test_another_request_under_the_same_key(pay, change):
    view = pay()
    ask(view, {"sku": 1})
    assert code(ask(view, **({"body": {"sku": 1}} | change))) == (422, "idempotency-key-reused")
    assert replayed(ask(view, {"sku": 1}))


def test_key_is_missing(pay):
    view = pay()
    assert code(ask(view, key=None)) == (400, "idempotency-key-missing")
    assert ask(view).content == b'{"charge": 1}'


@pytest.mark.parametrize("key", ["", '""', '"a', 'a"b"', '"a", "b"', "a,b", '"\\x"', "a b", '"é"', f'"{"x" * 256}"'])
def test_key_is_invalid(pay, key):
    request = RequestFactory().post("/pay", HTTP_IDEMPOTENCY_KEY=key)
    request.user = ALICE
    assert code(pay()(request)) == (400, "idempotency-key-invalid")


@pytest.mark.parametrize(
    ("status", "headers", "stored"),
    [
        (404, {}, True),
        (202, {"Retry-After": "5"}, True),  # says when the result is ready
        (409, {"Retry-After": "5"}, False),  # such as that of a locked view
        *[(status, {}, False) for status in (500, 503, 408, 425, 429)],
    ],
)
def test_which_answers_are_stored(pay, status, headers, stored):
    """After an answer that is not stored, a repeat runs the view."""
    view = pay(lambda _request, number: HttpResponse(str(number), status=status, headers=headers))
    assert [ask(view).content for _ in range(2)] == [b"1", b"1" if stored else b"2"]


def test_exceptions_are_not_stored(pay):

    def respond(_request, number):
        if number == 1:
            raise ZeroDivisionError
        return HttpResponse(str(number))

    view = pay(respond)
    with pytest.raises(ZeroDivisionError):
        ask(view)
    assert ask(view).content == b"2"
    assert replayed(ask(view))


def test_headers(pay):
    """Only headers that describe the body are stored, and no cookies."""

    def respond(_request, _number):
        headers = {"Location": "/orders/1", "Vary": "Cookie", "X-Request-Id": "17", "Cache-Control": "private"}
        response = HttpResponseRedirect("/orders/1", headers=headers)
        response.set_cookie("cart", "empty")
        return response

    view = pay(respond)
    ask(view)
    again = ask(view)
    assert again.status_code == 302
    assert {**again.headers} == {
        "Cache-Control": "private",
        "Content-Type": "text/html; charset=utf-8",
        "Idempotent-Replayed": "true",
        "Location": "/orders/1",
        "Vary": "Cookie",
    }
    assert not again.cookies


def test_chosen_headers(pay):

    def respond(_request, _number):
        response = HttpResponse(b"\x00\xff", headers={"X-Request-Id": "17"})
        response.set_cookie("cart", "a b", max_age=60, httponly=True, samesite="Lax")
        response.set_cookie("seen", "1")
        return response

    view = pay(respond, headers=["X-Request-Id", "Set-Cookie"])
    first, again = ask(view), ask(view)
    assert again.content == b"\x00\xff"
    assert {**again.headers} == {"X-Request-Id": "17", "Idempotent-Replayed": "true"}
    assert again.cookies.output() == first.cookies.output()


def test_rendered_templates(pay):
    view = pay(lambda request, number: TemplateResponse(request, "admin/404.html", {"number": number}))
    first, again = ask(view), ask(view)
    assert first.is_rendered
    assert (replayed(again), again.content) == (True, first.content)


@pytest.mark.parametrize("kind", [StreamingHttpResponse, FileResponse])
def test_streaming(pay, kind):
    with pytest.raises(AnswerNotStorable, match="can't be stored"):
        ask(pay(lambda _request, _number: kind(io.BytesIO(b"x"))))


def test_large_answer(pay):
    view = pay(lambda _request, number: HttpResponse(b"x" * (9 + number)), max_answer=10)
    assert len(ask(view).content) == 10
    with pytest.raises(AnswerNotStorable, match="11 bytes, and max_answer allows 10"):
        ask(view, key='"k2"')


def test_large_request(pay, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    assert code(ask(pay(), "x" * 20)) == (413, "idempotency-request-too-large")


def parsed(request):
    """Return the file of a form as a view gets it: Django parses a POST, and other methods are left to the view."""
    files = request.FILES if request.method == "POST" else request.parse_file_upload(request.META, request)[1]
    with files["file"] as file:
        return file.read().decode()


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT"])
def test_forms(pay, settings, method):
    """A form with a file is the same request with another boundary, and another one with another file."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    view = pay(lambda request, number: JsonResponse([number, parsed(request)], safe=False), methods=[method])

    def send(boundary, content):
        parts = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{content}\r\n'
        body = f"{parts}--{boundary}--\r\n".encode()
        kind = f"multipart/form-data; boundary={boundary}"
        request = RequestFactory().generic(method, "/pay", body, kind, HTTP_IDEMPOTENCY_KEY='"k"')
        request.user = ALICE
        return view(request)

    assert send("one", "x" * 200).content == b'[1, "%s"]' % (b"x" * 200)
    assert replayed(send("two", "x" * 200))
    assert code(send("one", "y" * 200)) == (422, "idempotency-key-reused")


def test_the_body_of_a_form_stays_readable(pay):
    """A view may read the body of a PATCH itself."""
    view = pay(lambda request, _number: HttpResponse(request.body))
    body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'
    request = RequestFactory().generic(
        "PATCH", "/pay", body, "multipart/form-data; boundary=x", headers={"Idempotency-Key": "k"}
    )
    request.user = ALICE
    assert view(request).content == body


def test_the_view_knows_the_key(pay):
    """The view can read the key and pass it on, for example to a payment provider."""
    assert ask(pay(lambda request, _number: HttpResponse(request.idempotency_key))).content == b"k1"


@pytest.mark.parametrize("user", [None, User(username="ann")], ids=["no session", "no primary key"])
def test_users_that_cannot_be_told_apart(pay, user):
    """A key without a user, session or scope is refused, and that of a user without a primary key, as of a token."""
    for view in pay(), pay(scope=by_client):
        assert code(ask(view, user=user)) == (400, "idempotency-user-missing")


def test_users_of_two_models(pay):
    """Users of different models don't share answers, although their primary keys and idempotency keys are equal."""

    class Merchant(SimpleNamespace):
        """Another kind of user."""

    view = pay()
    for user in User(pk=1), Merchant(is_authenticated=True, pk=1):
        assert not replayed(ask(view, user=user))
        assert replayed(ask(view, user=SimpleLazyObject(lambda user=user: user)))  # as in Django's request.user


def test_answers_expire(pay):
    view = pay(keep=0.001)
    while ask(view).content == b'{"charge": 1}':
        pass
    assert ask(view, key='"k2"').status_code == 201
