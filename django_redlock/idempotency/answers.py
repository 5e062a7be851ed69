"""`Entry`, one request with a key; `Known`, what a store knows of it; `Answer`, the stored form of its response."""

from __future__ import annotations

import json
from collections.abc import Collection
from http.cookies import SimpleCookie
from typing import Any, Literal, NamedTuple, Self

from django.http import HttpResponse

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
    """One request with an idempotency key."""

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
    """The view has returned a response that can't be stored: a streaming one, or one that is too large."""


class Answer(NamedTuple):
    """The status, the chosen headers and the body of a response."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @classmethod
    def of(cls, response: Any, headers: Collection[str], max_answer: int) -> Self | None:
        """Return the answer in ``response``, which is rendered if needed; ``None`` if it is not to be stored.

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
        """Return the response to a repeated request. Its header ``Idempotent-Replayed`` says that it was stored."""
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
        """Return the answer that `encoded` has written. Raises ``ValueError`` for other bytes."""
        head, _, body = text.partition(b"\n")
        status, headers = json.loads(head)
        return cls(status, tuple((name, value) for name, value in headers), body)
