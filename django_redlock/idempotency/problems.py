"""The responses of requests that are refused: problem details in JSON (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus

from django.http import HttpResponse, JsonResponse

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
