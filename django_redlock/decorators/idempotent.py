"""``@idempotent()`` runs a view once for each ``Idempotency-Key``. Repeated requests get the stored answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, wraps
from typing import Any, NamedTuple, Never, TypeVar

from asgiref.sync import sync_to_async
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse

from ..backend_registry import DEFAULT_ALIAS, locks
from ..core.events import logger
from ..core.flow.drivers import adrive, drive
from ..core.flow.requests import Flow
from ..core.flow.steps import Step, StepOutcome
from ..core.values import Seconds, check_lease, seconds
from ..errors import LockError, LockUnavailable
from ..idempotency import problems
from ..idempotency.answers import HEADERS, Answer, AnswerNotStorable
from ..idempotency.database import DatabaseStore
from ..idempotency.entries import Entry, InDoubt, Known
from ..idempotency.identity import KEY_HEADER, fingerprint, read_key, record_name, user_or_session
from ..idempotency.stores import request_lock
from .uncancelled import run_to_end
from .view_wrapping import (
    AFTER_VIEW,
    IDEMPOTENT,
    NOT_RUN,
    EveryAlias,
    check_commit,
    check_locks,
    check_place,
    check_view,
    decorate_class,
    in_transactions,
    is_async,
    opted_out_aliases,
    right_place,
)

V = TypeVar("V", bound=Callable[..., Any])
Scope = Callable[[Any], str | None]

ANSWER_SECONDS = 86400
MAX_ANSWER = 1 << 20  # bytes


class IdempotentRequest(HttpRequest):
    """Type annotation for the request of a view with `idempotent`. Never instantiated.

    ``request.idempotency_key`` is the client's key. A request without a key lacks the attribute.
    """

    idempotency_key: str


def idempotent(
    *misplaced: Never,
    database: str | None = None,
    using: str = DEFAULT_ALIAS,
    required: bool = True,
    scope: Scope | None = None,
    keep: Seconds = ANSWER_SECONDS,
    ttl: Seconds | None = None,
    in_doubt: InDoubt | None = None,
    headers: Collection[str] = HEADERS,
    max_answer: int = MAX_ANSWER,
    methods: Collection[str] = ("POST", "PATCH"),
) -> Callable[[V], V]:
    """Run a view once for each ``Idempotency-Key`` of a user. Decorates functions and class-based views.

    A repeat of a request gets the stored status, headers and body, and the header ``Idempotent-Replayed: true``. Other
    responses are problem details (RFC 9457): 400 without a valid key, 409 with ``Retry-After`` while the first request
    runs, 422 for another request under the same key, 503 when the store does not reply. Source:
    draft-ietf-httpapi-idempotency-key-header.

    Without ``database``, the answers are kept in Redis, in the backend ``using``. With ``database``, the alias of the
    database that the view writes to, the answer is written in the same transaction as the work of the view; a lock of
    the backend ``using`` refuses repeats meanwhile. Async views can't have a ``database``.

    ``required``: whether a request needs a key. ``scope``: a function that gets the request, and returns a text that
    identifies the client to whom the key belongs; by default, the text identifies the user, or the session of an
    anonymous user. ``keep``: seconds for which an answer is kept. ``ttl``: seconds of the lease of a running request;
    the lease is renewed. ``in_doubt``: in Redis, what happens to a repeat if the outcome of the request is unknown, for
    example because its process has died: ``"refuse"`` (the default) answers 409, ``"run"`` runs the view again.
    ``headers``: the response headers to store. ``max_answer``: the largest body to store, in bytes. ``methods``: the
    HTTP methods to protect.

    The following are not stored, so a repeat runs the view again: exceptions of the view, statuses of 500 and above,
    408, 425 and 429, errors with ``Retry-After``, and the response of a locked view that did not get its lock. A
    streaming or too large response raises ``AnswerNotStorable``.

    The decorator raises ``TypeError`` and ``ValueError`` for bad options and for an object that is not a view.
    """
    if misplaced:
        raise TypeError("idempotent() has keyword options only: write @idempotent() above the view, with parentheses")
    if in_doubt not in (None, "refuse", "run"):
        raise ValueError(f'in_doubt must be "refuse" or "run", not {in_doubt!r}')
    if database is not None and in_doubt is not None:
        raise TypeError("in_doubt= is for answers in Redis: with database= the outcome is always known")
    if scope is not None and not callable(scope):
        raise TypeError(f"scope must be a function of the request, not {scope!r}")
    if isinstance(max_answer, bool) or not isinstance(max_answer, int) or max_answer < 1:
        raise ValueError(f"max_answer must be a positive number of bytes, not {max_answer!r}")
    terms = _Terms(
        None if database is None else DatabaseStore(_text(database, "database"), _text(using, "using"), _lease(ttl)),
        _text(using, "using"),
        bool(required),
        scope,
        seconds(keep, "keep"),
        _lease(ttl),
        in_doubt or "refuse",
        _names(headers, "headers"),
        max_answer,
        frozenset(each.upper() for each in _names(methods, "methods")),
    )

    def decorate(view: Any) -> Any:
        if isinstance(view, type):
            return decorate_class(view, decorate, "idempotent")
        check_view(view, "idempotent")
        _check_order(view, terms)
        return _wrap(view, terms)

    return decorate


class _Terms(NamedTuple):
    """The options of one `idempotent`, checked. Times are seconds."""

    database: DatabaseStore | None
    using: str
    required: bool
    scope: Scope | None
    keep: float
    ttl: float | None
    in_doubt: InDoubt
    headers: tuple[str, ...]
    max_answer: int
    methods: frozenset[str]

    def entry_of(self, request: Any, view: Any, opted_out: set[str]) -> Entry | HttpResponse | None:
        """Return the `Entry` that identifies ``request``, or the response that refuses it.

        Returns ``None`` if the request needs no protection. ``opted_out``: the database aliases that the view excludes
        from ``ATOMIC_REQUESTS``. Raises ``TypeError`` if the decorator is in the wrong place.
        """
        if not isinstance(request, HttpRequest):
            kind = type(request).__name__
            raise TypeError(f"idempotent() got {kind} instead of an HttpRequest: {right_place('idempotent')}")
        check_place("idempotent", "the stored answer", opted_out)
        if request.method not in self.methods:
            return None
        if (header := request.headers.get(KEY_HEADER)) is None:
            return problems.KEY_MISSING.response() if self.required else None
        if (key := read_key(header)) is None:
            return problems.KEY_INVALID.response()
        try:
            scope = self.scope(request) if self.scope else user_or_session(request, view)
        except Exception as error:
            if (refused := problems.not_authenticated(error)) is None:
                raise
            return refused
        if not scope:
            return problems.NO_USER.response()
        try:
            mark = fingerprint(request, _text(scope, "scope()"))
        except RequestDataTooBig:
            return problems.TOO_LARGE.response()
        request.idempotency_key = key  # type: ignore[attr-defined]
        label = f"{request.method} {request.path}"
        return Entry(record_name(scope, key), mark, label, self.keep, self.in_doubt)

    def answer_of(self, response: Any) -> Answer | None:
        """Return the answer to store; ``None`` if ``response`` is not to be stored. Renders ``response`` if needed.

        The response of a locked view that did not get its lock is not stored: a repeat of the request runs the view.
        """
        if hasattr(response, NOT_RUN):
            return None
        if (answer := Answer.of(response, self.headers, self.max_answer)) is not None:
            check_commit(answer.status)
        return answer


def _query(call: Callable[[], Any]) -> Step:
    """Return the request to call a function that may use the database. Under asyncio, a thread calls it."""
    return Step(call, sync_to_async(call))


def _flow(terms: _Terms, entry_of: Callable[[], Any], view: Step, began: list[Entry]) -> Flow[Any]:
    """Handle one request. Returns the view's response, the stored response of an earlier request, or an error response.

    ``entry_of``: returns the result of `_Terms.entry_of`. ``view``: runs the view in its transactions. Its value is a
    pair: the response, and the answer to store. ``began``: an empty list. The entry is appended just before the view
    runs, so that the caller no longer cancels the flow; not used with ``database``. Raises the exception of the view.
    """
    entry = (yield _query(entry_of)).unwrap()
    if isinstance(entry, HttpResponse):
        return entry
    if entry is None:
        return (yield view).unwrap()[0]
    if terms.database is not None:
        outcome = (yield _query(partial(terms.database.run, entry, view.call))).unwrap()
        return _known_response(outcome) if isinstance(outcome, Known) else outcome
    lock = request_lock(locks[terms.using], entry, terms.ttl)
    try:
        known = yield from lock.begin_flow()
    except LockUnavailable:
        logger.exception("%s: the store is unavailable", entry.label)
        return problems.UNAVAILABLE.response(problems.LATER)
    if known is not None:
        return _known_response(known)
    began.append(entry)
    ended: StepOutcome = yield view
    if ended.error is not None and not isinstance(ended.error, Exception):
        lock.end_lease()  # sends no request, because the process may be about to end
    else:
        lock.answer = _to_store(ended)
        try:
            yield from lock.release_flow()
        except LockError as error:  # the work is done: the client gets its answer
            logger.warning("%s: the answer may not be stored: %s", entry.label, error)
    return ended.unwrap()[0]


def _known_response(known: Known) -> HttpResponse:
    if known.found == "answer":
        return Answer.decoded(known.answer).response()
    if known.found == "mismatch":
        return problems.KEY_REUSED.response()
    if known.found == "in_doubt":
        return problems.IN_DOUBT.response()
    return problems.KEY_IN_USE.response(problems.SOON)


def _wrap(view: Callable[..., Any], terms: _Terms) -> Callable[..., Any]:
    opted_out, inner = opted_out_aliases(view), _is_locked(view)

    @wraps(view)
    def call(request: Any, *args: Any, **kwargs: Any) -> Any:
        def work() -> Any:
            response = view(request, *args, **kwargs)
            answer = terms.answer_of(response)
            check_locks(request)
            return response, answer

        def perform(step: Any) -> Any:
            return step.perform() if type(step) is Step else locks[terms.using].perform(step)

        run = in_transactions(work, opted_out, inner)
        return drive(_flow(terms, partial(terms.entry_of, request, view, set(opted_out)), Step(run, run), []), perform)

    @wraps(view)
    async def acall(request: Any, *args: Any, **kwargs: Any) -> Any:
        began: list[Entry] = []

        async def work() -> Any:
            response = await view(request, *args, **kwargs)
            answer = await sync_to_async(terms.answer_of)(response)
            check_locks(request)
            return response, answer

        async def perform(step: Any) -> Any:
            return await (step.aperform() if type(step) is Step else locks[terms.using].aperform(step))

        def run() -> Any:
            return in_transactions(work, opted_out, inner)()

        flow = _flow(terms, partial(terms.entry_of, request, view, set(opted_out)), Step(run, run), began)
        # A client that disconnects cancels this coroutine. A request that has begun goes on, so that the client's
        # repeat gets its answer.
        return await run_to_end(adrive(flow, perform), cancellable=lambda: not began)

    wrapper: Any = acall if is_async(view) else call
    wrapper._non_atomic_requests = opted_out
    setattr(wrapper, IDEMPOTENT, True)
    return wrapper  # type: ignore[no-any-return]


def _to_store(ended: StepOutcome) -> bytes | None:
    """Return what the release stores, as in `RequestLock`: an answer, ``b""`` to forget the request, or ``None``.

    ``None``: the view may have done its work although there is no answer, so a repeat must not run it.
    """
    if ended.error is None:
        answer: Answer | None = ended.value[1]
        return b"" if answer is None else answer.encoded()
    return None if isinstance(ended.error, AnswerNotStorable) or hasattr(ended.error, AFTER_VIEW) else b""


def _check_order(view: Any, terms: _Terms) -> None:
    """Raise ``TypeError`` if ``view`` already has a decorator that must not be inside `idempotent`."""
    name = getattr(view, "__qualname__", view)
    if getattr(view, IDEMPOTENT, False):
        raise TypeError(f"{name} has two idempotent() decorators")
    if terms.database is None:
        return
    if is_async(view):
        raise TypeError(
            f"{name} is async, and Django has no transactions in async code: write the view with `def`, or leave out "
            "database= to keep the answers in Redis"
        )
    if _is_locked(view):
        raise TypeError(
            f"put locked_view() above idempotent(database=…) on {name}: the lock has to outlive the transaction"
        )


def _is_locked(view: Any) -> bool:
    """Return whether ``view`` has a `locked_view`, which begins the transactions of ``ATOMIC_REQUESTS`` in its lock."""
    return isinstance(getattr(view, "_non_atomic_requests", None), EveryAlias)


def _lease(ttl: Seconds | None) -> float | None:
    return None if ttl is None else check_lease(seconds(ttl, "ttl"), "ttl")


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a text, not {value!r}")
    return value


def _names(values: Collection[str], what: str) -> tuple[str, ...]:
    if isinstance(values, str):
        raise TypeError(f"{what} must be a list of names, not one text: [{values!r}]")
    return tuple(_text(each, f"each of {what}") for each in values)
