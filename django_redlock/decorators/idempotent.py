"""``@idempotent()`` runs a view once for each ``Idempotency-Key``. Repeated requests get the stored answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, InitVar, dataclass
from functools import partial
from inspect import unwrap
from typing import Any, TypeVar

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse

from ..backend_registry import DEFAULT_ALIAS, locks
from ..call_styles import Blocking, complete
from ..core.events import logger
from ..core.values import Seconds, check_lease, seconds
from ..errors import LockError, LockUnavailable
from ..idempotency.answers import HEADERS, RUNNING, Answer, Entry, InDoubt, Known, not_authenticated, refusal
from ..idempotency.database import run_in_transaction
from ..idempotency.identity import KEY_HEADER, fingerprint, read_key, record_name, user_or_session
from ..idempotency.request_lock import RequestLock, request_lock
from .protected_request import Decorated, ProtectedRequest, Respond, check_commit, is_async, protect, right_place

V = TypeVar("V", bound=Callable[..., Any])
Scope = Callable[[Any], str | None]

LOOK_AGAIN = 0.1, 0.3  # seconds between two looks at a request that runs, with ``wait``


class IdempotentRequest(HttpRequest):
    """Type annotation for the request of a view with `idempotent`. Never instantiated.

    ``request.idempotency_key`` is the client's key. A request without a key lacks the attribute.
    """

    idempotency_key: str


@dataclass(frozen=True)
class idempotent:  # noqa: N801  (a decorator)
    """Run a view once for each ``Idempotency-Key`` of a user. Decorates functions and class-based views.

    ::

        @idempotent(database="default")
        def pay(request): ...

    A repeat of a request gets the stored status, headers and body, and the header ``Idempotent-Replayed: true``.
    Refusals are problem details (RFC 9457): 400 without a valid key, 409 with ``Retry-After`` while the first request
    runs, 422 for a different request with the same key, 503 when the store does not reply. Source:
    draft-ietf-httpapi-idempotency-key-header. Times are seconds or a ``timedelta``.

    - ``database`` (``None``): alias of the database that the view writes to. The answer is written in the view's
      transaction; not for async views. ``None``: the answers are kept in Redis.
    - ``using`` ("default"): alias of the backend that keeps the answers or, with ``database``, refuses repeats of a
      running request.
    - ``required`` (``True``): whether a request without a key is refused.
    - ``scope`` (``None``): function of the request that returns a text, the owner of the key. ``None``: the user, or
      the session of an anonymous user.
    - ``keep`` (86400): time for which an answer is kept.
    - ``ttl`` (``None``): lease of a running request, renewed while it runs. ``None``: the backend's default.
    - ``wait`` (0): time for which a repeat waits for the answer of the running first request, before it gets 409.
    - ``in_doubt`` ("refuse"): what happens to a repeat if the outcome is unknown, for example because the process has
      died: "refuse" answers 409, "run" runs the view again. Not with ``database``, where the outcome is known.
    - ``headers``: names of the response headers to store. Default: the headers that describe the body.
    - ``max_answer`` (1048576): largest body to store, in bytes.
    - ``methods`` (POST, PATCH): HTTP methods to protect.

    A repeat runs the view again after an exception, after a status of 500 and above, 408, 425 or 429, after an error
    with ``Retry-After``, and after a refusal by `locked_view`. A streaming or too large response raises
    ``AnswerNotStorable``. A successful response whose transaction is marked for rollback raises
    ``TransactionManagementError``. The decorator raises ``TypeError`` and ``ValueError`` for bad options and for an
    object that is not a view.
    """

    misplaced: InitVar[None] = None
    _: KW_ONLY
    database: str | None = None
    using: str = DEFAULT_ALIAS
    required: bool = True
    scope: Scope | None = None
    keep: Seconds = 86400
    ttl: Seconds | None = None
    wait: Seconds = 0
    in_doubt: InDoubt | None = None
    headers: Collection[str] = HEADERS
    max_answer: int = 1 << 20
    methods: Collection[str] = ("POST", "PATCH")

    def __post_init__(self, misplaced: Any) -> None:
        if misplaced is not None:
            raise TypeError(
                "idempotent() has keyword options only: write @idempotent() above the view, with parentheses"
            )
        if self.in_doubt not in (None, "refuse", "run"):
            raise ValueError(f'in_doubt must be "refuse" or "run", not {self.in_doubt!r}')
        if self.database is not None and self.in_doubt is not None:
            raise TypeError("in_doubt= is for answers in Redis: with database= the outcome is always known")
        if self.scope is not None and not callable(self.scope):
            raise TypeError(f"scope must be a function of the request, not {self.scope!r}")
        if isinstance(self.max_answer, bool) or not isinstance(self.max_answer, int) or self.max_answer < 1:
            raise ValueError(f"max_answer must be a positive number of bytes, not {self.max_answer!r}")
        for what, names in (("headers", self.headers), ("methods", self.methods)):
            if isinstance(names, str):
                raise TypeError(f"{what} must be a list of names, not one text: [{names!r}]")
        seconds(self.keep, "keep")
        if self.wait:
            seconds(self.wait, "wait")
        if self.ttl is not None:
            check_lease(seconds(self.ttl, "ttl"), "ttl")

    def __call__(self, view: V) -> V:
        decorated: V = protect(view, "idempotent", self._respond_for)
        return decorated

    def _respond_for(self, view: Any) -> Respond:
        """Return the coroutine function that responds to the requests of ``view``.

        Raises ``TypeError`` if ``view`` has a decorator that must stand outside of this one.
        """
        name, inside = getattr(view, "__qualname__", view), Decorated.of(view).decorators
        if "idempotent" in inside:
            raise TypeError(f"{name} has two idempotent() decorators")
        if self.database is not None and is_async(view):
            raise TypeError(
                f"{name} is async, and Django has no transactions in async code: write the view with `def`, or leave "
                "out database= to keep the answers in Redis"
            )
        if self.database is not None and "locked_view" in inside:
            raise TypeError(
                f"put locked_view() above idempotent(database=…) on {name}: the lock has to outlive the transaction"
            )
        return partial(self._respond, view)

    async def _respond(
        self, view: Any, style: Blocking, protected: ProtectedRequest, proceed: Any, request: Any, *_arguments: Any
    ) -> Any:
        """Return the response of the view, the stored answer to an earlier request, or a refusal."""
        entry = await style.query(self._entry_of, view, request)
        if isinstance(entry, HttpResponse):
            return entry
        if entry is None:
            return await proceed()
        protected.stored = True
        deadline = time.monotonic() + (seconds(self.wait, "wait") if self.wait else 0.0)
        while True:
            if self.database is None:
                outcome = await self._run(style, protected, entry, proceed)
            else:
                outcome = self._run_in_database(self.database, protected, entry, proceed)
            left = deadline - time.monotonic()
            if outcome != RUNNING or left <= 0:
                break
            await style.sleep(min(left, random.uniform(*LOOK_AGAIN)))
        if not isinstance(outcome, Known):
            return outcome
        return Answer.decoded(outcome.answer).response() if outcome.found == "answer" else refusal(outcome.found)

    async def _run(self, style: Blocking, protected: ProtectedRequest, entry: Entry, proceed: Any) -> Any:
        """Run the view once, and store its answer in Redis or in memory.

        If the view has returned, but its answer can't be stored or the commit has failed, the record is kept as it is,
        because the work may have been done. Later requests find it in doubt.
        """
        backend = locks[self.using]
        lock = request_lock(backend, entry, self.ttl)
        try:
            known: Known | None = await style.drive(lock.begin_flow(), backend)
        except LockUnavailable:
            logger.exception("%s: the store is unavailable", entry.label)
            return refusal("unavailable")
        if known:
            return known
        try:
            response = await proceed()
            answer = await style.query(self._answer_of, protected, response)
        except BaseException as error:
            if isinstance(error, Exception) or not protected.begun:
                await _end(style, lock, None if protected.returned else b"")
            else:  # the process may be about to end in the middle of the work: send no request
                lock.required_hold().end()
            raise
        await _end(style, lock, answer.encoded() if answer else b"")
        return response

    def _run_in_database(self, database: str, protected: ProtectedRequest, entry: Entry, proceed: Any) -> Any:
        """Run the view once, and store its answer in the same database transaction. Not for async views."""

        def work() -> tuple[Any, Answer | None]:
            response = complete(proceed())
            answer = self._answer_of(protected, response)
            protected.check_locks()
            return response, answer

        lock = locks[self.using].lock(entry.name, ttl=self.ttl, owner=entry.label, on_lost="warn")
        return run_in_transaction(database, lock, entry, work)

    def _entry_of(self, view: Any, request: Any) -> Entry | HttpResponse | None:
        """Return the `Entry` that identifies ``request``, or the response that refuses it.

        Returns ``None`` if the request needs no protection. Raises ``TypeError`` if the decorator is in a wrong place.
        """
        if not isinstance(request, HttpRequest):
            kind = type(request).__name__
            raise TypeError(f"idempotent() got {kind} instead of an HttpRequest: {right_place('idempotent')}")
        match = request.resolver_match
        if match and _is_of_ninja(match.func) and not _is_of_ninja(getattr(unwrap(view), "__self__", None)):
            raise TypeError(
                "idempotent() stores HTTP responses, but the operation of django-ninja returns an object: put it "
                "around the operation's view, @api.post(...) above @decorate_view(idempotent(...))"
            )
        if request.method not in {each.upper() for each in self.methods}:
            return None
        if (header := request.headers.get(KEY_HEADER)) is None:
            return refusal("missing") if self.required else None
        if (key := read_key(header)) is None:
            return refusal("invalid")
        try:
            scope = self.scope(request) if self.scope else user_or_session(request, view)
        except Exception as error:
            if (refused := not_authenticated(error)) is None:
                raise
            return refused
        if not scope:
            return refusal("no_user")
        if not isinstance(scope, str):
            raise TypeError(f"scope() must return a text, not {scope!r}")
        try:
            mark = fingerprint(request, scope)
        except RequestDataTooBig:
            return refusal("too_large")
        request.idempotency_key = key  # type: ignore[attr-defined]
        label = f"{request.method} {request.path}"
        return Entry(record_name(scope, key), mark, label, seconds(self.keep, "keep"), self.in_doubt or "refuse")

    def _answer_of(self, protected: ProtectedRequest, response: Any) -> Answer | None:
        """Return the answer to store; ``None`` if ``response`` is not to be stored. Renders ``response`` if needed.

        A response that does not come from the view is not stored, for example a refusal by `locked_view`.
        """
        if not protected.returned:
            return None
        if (answer := Answer.of(response, self.headers, self.max_answer)) is not None:
            check_commit(response)
        return answer


async def _end(style: Blocking, lock: RequestLock, answer: bytes | None) -> None:
    """Release the lock of a request. ``answer``: the change to the request's record, see `Running`."""
    lock.running.answer = answer
    try:
        await style.drive(lock.release_flow(), lock.store)
    except LockError as error:  # the work is done: the client gets its answer
        logger.warning("%s: the answer may not be stored: %s", lock.running.entry.label, error)


def _is_of_ninja(value: Any) -> bool:
    """Return whether ``value`` is a function or an object defined by django-ninja."""
    module = getattr(value, "__module__", None) or ""
    return module.partition(".")[0] == "ninja"
