"""`Answer`, the stored form of a response to a request with a key, and the problem responses of refused requests.

`Entry` identifies the request, and `Known` is the information that a store has about it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from http import HTTPStatus
from http.cookies import SimpleCookie
from typing import Any, Literal, NamedTuple, Self

from django.http import HttpResponse, JsonResponse

InDoubt = Literal["refuse", "run"]
Found = Literal["answer", "mismatch", "in_doubt", "running", "unavailable"]

REPLAYED = "Idempotent-Replayed"  # as Stripe calls it
# The headers that are stored by default: what describes the body, and how long it may be cached.
HEADERS = (
    "Allow",
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Location",
    "Content-Type",
    "ETag",
    "Expires",
    "Last-Modified",
    "Link",
    "Location",
    "Vary",
)
_COOKIES = "set-cookie"
_REPEATABLE = frozenset({408, 425, 429})  # these statuses ask the client to repeat the request


class Entry(NamedTuple):
    """The name, fingerprint and times of one request with an idempotency key."""

    name: str  # a hash of the user and the key
    fingerprint: str  # a hash of the request; a repeat has the same
    label: str  # method and path, for the list of live locks
    keep: float  # seconds for which the answer is kept
    in_doubt: InDoubt = "refuse"  # what happens to a repeat if the outcome of the request is not known


class Known(NamedTuple):
    """The reason why the view does not run for a request.

    ``found``: "answer", an earlier request has been answered with ``answer`` (from `Answer.encoded`); "mismatch", the
    key was used for a different request; "running", an earlier request still runs; "in_doubt", an earlier request was
    interrupted, and its work may have been done; "unavailable", the store does not accept the request.
    """

    found: Found
    answer: bytes = b""


RUNNING = Known("running")


class AnswerNotStorable(TypeError):
    """The view has returned a response that can't be stored, because it is streaming or too large."""


class Answer(NamedTuple):
    """The status, the chosen headers and the body of a response."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @classmethod
    def of(cls, response: Any, headers: Collection[str], max_answer: int) -> Self | None:
        """Return the answer in ``response``, which is rendered if needed; ``None`` for a response that is not stored.

        Statuses of 500 and above, 408, 425, 429, and errors with a ``Retry-After`` header are not stored. ``headers``:
        the names of the headers to store; ``Set-Cookie`` stands for all cookies. Raises `AnswerNotStorable` for a
        streaming response, and for a body of more than ``max_answer`` bytes.
        """
        if not isinstance(response, HttpResponse):
            kind = type(response).__name__
            raise AnswerNotStorable(f"idempotent(): a {kind} can't be stored and sent again; return an HttpResponse")
        if callable(render := getattr(response, "render", None)):
            render()
        if response.status_code >= 500 or response.status_code in _REPEATABLE:
            return None
        if response.status_code >= 400 and "Retry-After" in response:
            return None
        body = response.content
        if len(body) > max_answer:
            raise AnswerNotStorable(
                f"idempotent(): the response has {len(body)} bytes, and max_answer allows {max_answer}"
            )
        kept = [(name, response[name]) for name in headers if name in response and name.lower() != _COOKIES]
        if _COOKIES in map(str.lower, headers):
            kept += [("Set-Cookie", morsel.OutputString()) for morsel in response.cookies.values()]
        return cls(response.status_code, tuple(kept), body)

    def response(self) -> HttpResponse:
        """Return the response to a repeated request. It has the header ``Idempotent-Replayed: true``."""
        response = HttpResponse(self.body, status=self.status)
        del response["Content-Type"]  # unless the first response had one
        for name, value in self.headers:
            if name.lower() == _COOKIES:
                response.cookies.update(SimpleCookie(value))
            else:
                response[name] = value
        response[REPLAYED] = "true"
        return response

    def encoded(self) -> bytes:
        """Return the answer as bytes: a line of JSON, then the body."""
        return json.dumps([self.status, self.headers]).encode() + b"\n" + self.body

    @classmethod
    def decoded(cls, text: bytes) -> Self:
        """Return the answer encoded in ``text``, a result of `encoded`. Raises ``ValueError`` for other bytes."""
        head, _, body = text.partition(b"\n")
        status, headers = json.loads(head)
        return cls(status, tuple((name, value) for name, value in headers), body)


# ── refusals: problem details in JSON (RFC 9457) ──────────────────────────────────────────────────

# By reason: the status, and the code for programs.
_CODES = {
    "missing": (400, "idempotency-key-missing"),
    "invalid": (400, "idempotency-key-invalid"),
    "no_user": (400, "idempotency-user-missing"),
    "too_large": (413, "idempotency-request-too-large"),
    "mismatch": (422, "idempotency-key-reused"),
    "running": (409, "idempotency-key-in-use"),
    "in_doubt": (409, "idempotency-outcome-unknown"),
    "unavailable": (503, "idempotency-store-unavailable"),
}
_DETAILS = {
    "missing": "This request needs an Idempotency-Key header: a new random text for each order, and the same one for "
    "its repeats.",
    "invalid": 'The Idempotency-Key header must be one text in double quotes, such as "8e03978e-40d5-43dd-bc93-'
    '6894a57f9324", with 1 to 255 printable ASCII characters.',
    "no_user": "An idempotency key belongs to a user or a session, and this request has neither.",
    "too_large": "The body of this request is too large.",
    "mismatch": "This idempotency key was used for another request. Use a new key for each request that is not a "
    "repeat.",
    "running": "The first request with this idempotency key is still being worked on.",
    "in_doubt": "The first request with this idempotency key was interrupted, and it is not known whether it took "
    "effect. Find out whether it did before you send a new key.",
    "unavailable": "The service is not available now.",
}
# Seconds after which to repeat the request: it usually ends soon, and a store needs longer to come back.
_RETRY_AFTER = {"running": "1", "unavailable": "5"}


def refusal(reason: str) -> HttpResponse:
    """Return the response to a request that is refused for ``reason``, such as "missing" or "running"."""
    response = _problem(*_CODES[reason], _DETAILS[reason])
    if reason in _RETRY_AFTER:
        response["Retry-After"] = _RETRY_AFTER[reason]
    return response


def not_authenticated(error: Exception) -> HttpResponse | None:
    """Return the response for an error of Django REST framework's authentication; ``None`` for another error."""
    status, detail = getattr(error, "status_code", None), getattr(error, "detail", None)
    if status not in (401, 403) or detail is None:
        return None
    response = _problem(status, "not-authenticated", str(detail))
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    return response


def _problem(status: int, code: str, detail: str) -> HttpResponse:
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "code": code, "detail": detail}
    headers = {"Cache-Control": "no-store"}
    return JsonResponse(content, status=status, content_type="application/problem+json", headers=headers)
