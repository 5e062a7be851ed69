"""Views of Django REST framework: the user that they authenticate, and responses that have to be rendered."""

import base64

import pytest
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator

from django_redlock.decorators import idempotent
from tests.idempotency.conftest import code, replayed

pytest.importorskip("rest_framework")

from rest_framework.authentication import BasicAuthentication, SessionAuthentication, TokenAuthentication
from rest_framework.decorators import api_view, authentication_classes
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.response import Response
from rest_framework.serializers import ValidationError
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

calls = []


def answer(request):
    calls.append(request.user.username)
    if "bad" in request.data:
        raise ValidationError("bad")
    return Response({"call": len(calls), "sku": request.data["sku"]}, status=201)


once = idempotent(using="memory")


class Pay(APIView):
    authentication_classes = (BasicAuthentication,)

    def post(self, request):
        return answer(request)


@once
class OnViewSet(ViewSet):
    authentication_classes = (BasicAuthentication,)

    def create(self, request):
        return answer(request)


@once
@api_view(["POST"])
@authentication_classes([BasicAuthentication])
def on_function(request):
    return answer(request)


class NamedToken(TokenAuthentication):
    """Without a table of tokens: the token is the name of its user."""

    def authenticate_credentials(self, key):
        return User.objects.get(username=key), key


class WithDefaults(APIView):
    """A view with the authentication classes that Django REST framework has by default: session, then basic."""

    def post(self, request):
        return Response({"user": request.user.username, "auth": request.auth}, status=201)


class WithToken(WithDefaults):
    authentication_classes = (SessionAuthentication, NamedToken)


used = []


class OneTimeToken(TokenAuthentication):
    """A token that is valid once."""

    def authenticate_credentials(self, key):
        if key in used:
            raise AuthenticationFailed
        used.append(key)
        return User(pk=1, username=key), key


@once
class WithOneTimeToken(APIView):
    authentication_classes = (OneTimeToken,)

    def post(self, request, number):
        successful = type(request.successful_authenticator).__name__
        return Response([request.user.username, request.auth, successful, request.parser_context["kwargs"]["number"]])


VIEWS = {
    "class": once(type("OnClass", (Pay,), {})).as_view(),
    "dispatch": method_decorator(once, name="dispatch")(type("OnDispatch", (Pay,), {})).as_view(),
    "view set": OnViewSet.as_view({"post": "create"}),
    "function": on_function,
}
urlpatterns = [
    path("defaults", once(WithDefaults.as_view())),
    path("once/<int:number>", WithOneTimeToken.as_view()),
    path("token", once(WithToken.as_view())),
]


@pytest.fixture(params=VIEWS)
def send(request, stores, db):
    """`send("alice", {"sku": 1})`: the response of each kind of view in turn."""
    calls.clear()
    for name in ("alice", "bob"):
        User.objects.create_user(name, password="secret")

    def run(user, body, password="secret"):
        secret = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"Idempotency-Key": '"k"'} | ({"Authorization": f"Basic {secret}"} if user else {})
        response = VIEWS[request.param](RequestFactory().post("/", body, "application/json", headers=headers))
        return response.render() if hasattr(response, "render") else response

    return run


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def test_repeat(send):
    """The rendered answer is stored for the authenticated user, and another user has other keys."""
    first, again, other = send("alice", {"sku": 1}), send("alice", {"sku": 1}), send("bob", {"sku": 1})
    assert (first.status_code, first.content) == (201, b'{"call":1,"sku":1}')
    assert (again.status_code, again.content, again["Content-Type"]) == (201, first.content, "application/json")
    assert [replayed(each) for each in (first, again, other)] == [False, True, False]
    assert calls == ["alice", "bob"]
    assert code(send("alice", {"sku": 2})) == (422, "idempotency-key-reused")


def test_validation_errors(send):
    assert [send("alice", {"bad": 1}).status_code for _ in range(2)] == [400, 400]
    assert calls == ["alice"]


def test_wrong_credentials(send):
    answer = send("alice", {"sku": 1}, "wrong")
    assert code(answer) == (401, "not-authenticated")
    assert answer["WWW-Authenticate"].startswith("Basic")
    assert code(send(None, {"sku": 1})) == (400, "idempotency-user-missing")
    assert calls == []


@pytest.fixture
def client(settings, stores, db):
    """A client that sends no CSRF token and, unlike Django's client by default, is refused where one is needed."""
    settings.ROOT_URLCONF = __name__
    User.objects.create_user("alice", password="secret")
    return Client(enforce_csrf_checks=True, headers={"Idempotency-Key": '"k"'})


@pytest.mark.parametrize("csrf", [False, True])
@pytest.mark.parametrize(
    ("path", "secret", "auth"), [("defaults", "Basic YWxpY2U6c2VjcmV0", "null"), ("token", "Token alice", '"alice"')]
)
def test_session_authentication_comes_first(client, path, secret, auth, csrf):
    """SessionAuthentication does not take the user of another authentication for the user of a session."""
    headers = {"Authorization": secret}
    if csrf:
        client.cookies["csrftoken"] = headers["X-CSRFToken"] = "c" * 32
    first, again = (client.post(f"/{path}", {}, "application/json", headers=headers) for _ in range(2))
    assert (first.status_code, first.content.decode()) == (201, f'{{"user":"alice","auth":{auth}}}')
    assert (again.content, replayed(again)) == (first.content, True)


def test_the_user_of_a_session(client):
    """The user of a session needs a CSRF token, as without the decorator."""
    client.force_login(User.objects.get(username="alice"), "django.contrib.auth.backends.ModelBackend")
    assert code(client.post("/token", {}, "application/json")) == (403, "not-authenticated")
    client.cookies["csrftoken"] = "c" * 32
    answers = [client.post("/token", {}, "application/json", headers={"X-CSRFToken": "c" * 32}) for _ in range(2)]
    assert [(each.content, replayed(each)) for each in answers] == [
        (b'{"user":"alice","auth":null}', False),
        (b'{"user":"alice","auth":null}', True),
    ]


def test_a_token_that_is_valid_once(client):
    """A request is authenticated once, and the view gets the user, the token and the authenticator."""
    used.clear()
    first, again = (client.post("/once/3", headers={"Authorization": f"Token {key}"}) for key in "ab")
    assert first.json() == ["a", "a", "OneTimeToken", 3]
    assert (again.json(), replayed(again)) == (first.json(), True)
    refused = client.post("/once/3", headers={"Authorization": "Token a"})
    assert code(refused) == (401, "not-authenticated")


def test_on_a_handler(stores):
    request = RequestFactory().post("/", {}, headers={"Idempotency-Key": "k"})
    with pytest.raises(TypeError, match=r"got Request instead of an HttpRequest.*on the class"):
        method_decorator(once, name="post")(type("OnHandler", (Pay,), {})).as_view()(request)
