"""The responses of requests that are refused: problem details in JSON (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

from django.http import HttpResponse, JsonResponse

SOON, LATER = 1, 5  # seconds after which to repeat: a request usually ends soon, a store needs longer to come back


class Problem(NamedTuple):
    """Why a request is refused. ``code`` identifies the reason for programs, ``detail`` explains it to people."""

    status: HTTPStatus
    code: str
    detail: str

    def response(self, retry_after: int | None = None) -> HttpResponse:
        """Return the response. ``retry_after``: seconds; ``None`` for a request that is not to be repeated."""
        content = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "code": self.code,
            "detail": self.detail,
        }
        headers = {"Cache-Control": "no-store"}
        if retry_after is not None:
            headers["Retry-After"] = str(retry_after)
        return JsonResponse(content, status=self.status.value, content_type="application/problem+json", headers=headers)


KEY_MISSING = Problem(
    HTTPStatus.BAD_REQUEST,
    "idempotency-key-missing",
    "This request needs an Idempotency-Key header: a new random text for each order, and the same one for its repeats.",
)
KEY_INVALID = Problem(
    HTTPStatus.BAD_REQUEST,
    "idempotency-key-invalid",
    'The Idempotency-Key header must be one text in double quotes, such as "8e03978e-40d5-43dd-bc93-6894a57f9324", '
    "with 1 to 255 printable ASCII characters.",
)
NO_USER = Problem(
    HTTPStatus.BAD_REQUEST,
    "idempotency-user-missing",
    "An idempotency key belongs to a user or a session, and this request has neither.",
)
TOO_LARGE = Problem(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "idempotency-request-too-large", "The body of this request is too large."
)
KEY_REUSED = Problem(
    HTTPStatus.UNPROCESSABLE_ENTITY,
    "idempotency-key-reused",
    "This idempotency key was used for another request. Use a new key for each request that is not a repeat.",
)
KEY_IN_USE = Problem(
    HTTPStatus.CONFLICT,
    "idempotency-key-in-use",
    "The first request with this idempotency key is still being worked on.",
)
IN_DOUBT = Problem(
    HTTPStatus.CONFLICT,
    "idempotency-outcome-unknown",
    "The first request with this idempotency key was interrupted, and it is not known whether it took effect. "
    "Find out whether it did before you send a new key.",
)
UNAVAILABLE = Problem(
    HTTPStatus.SERVICE_UNAVAILABLE, "idempotency-store-unavailable", "The service is not available now."
)


def not_authenticated(error: Exception) -> HttpResponse | None:
    """Return the response for an error of Django REST framework's authentication; ``None`` for another error."""
    status, detail = getattr(error, "status_code", None), getattr(error, "detail", None)
    if status not in (401, 403) or detail is None:
        return None
    response = Problem(HTTPStatus(status), "not-authenticated", str(detail)).response()
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    return response
