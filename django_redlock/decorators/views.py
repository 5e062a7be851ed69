"""``@locked_view("stock:{sku}")`` runs a view under a lock. The request's transaction ends before the release."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeVar, Unpack, cast

from django.core.exceptions import BadRequest, SynchronousOnlyOperation
from django.http import HttpRequest, HttpResponse

from ..backend_registry import DEFAULT_ALIAS, locks
from ..call_styles import Blocking
from ..core.events import logger
from ..core.keys import check_name, stripe_name
from ..core.locks.lock import Lock
from ..core.locks.semaphore import Striped, check_stripes
from ..core.options import CommonOptions, LockKwargs, check_options
from ..errors import LockNotAcquired, LockUnavailable
from ..name_templates import namer
from .protected_request import ProtectedRequest, Respond, poses_as_method, protect

V = TypeVar("V", bound=Callable[..., Any])
OnConflict = int | Callable[[HttpRequest, LockNotAcquired], Any]

RETRY_AFTER = 5  # seconds, used when the time until the lock or the store is available is unknown


class LockedRequest(HttpRequest):
    """Type annotation for the request of a view with `locked_view`. Never instantiated.

    ``request.lock`` is the lock that is held.
    """

    lock: Lock


class StripedRequest(HttpRequest):
    """Type annotation for the request of a view with ``locked_view(…, stripes=N)``. Never instantiated.

    ``request.lock.stripe`` is the index of the stripe that is held, counted from 0.
    """

    lock: Striped


def locked_view(
    name: str,
    *,
    using: str = DEFAULT_ALIAS,
    on_conflict: OnConflict = 409,
    stripes: int | None = None,
    **options: Unpack[LockKwargs],
) -> Callable[[V], V]:
    """Hold a lock, ``request.lock``, while a view runs. Decorates sync and async functions and class-based views.

    ::

        @locked_view("stock:{sku}")
        def buy(request, sku): ...

    - ``name``: may contain arguments of the view and ``request``: ``"stock:{sku}"``.
    - ``using`` ("default"): alias of the lock backend.
    - ``on_conflict`` (409): response to a request that does not get the lock: a status, or a function of request and
      error that returns a response.
    - ``stripes`` (``None``): number of locks of which any free one is acquired. ``request.lock.stripe`` is the index of
      the held lock, from 0. ``request.lock.switch()`` exchanges it for another free one; if none is free, the response
      is that of ``on_conflict``.
    - ``blocking_timeout`` (0): seconds to wait for the lock.
    - other options: those of the backend's ``lock()``; times are seconds or a ``timedelta``.

    The lock is acquired before the transactions of ``ATOMIC_REQUESTS`` begin, and released after their commit. If the
    lock is lost before the commit, the transactions are rolled back and ``LockLost`` is raised. An async view that
    holds the lock runs to its end, even if the client disconnects.

    Responses: ``on_conflict`` if another request holds the lock, 503 if the store does not reply, both with
    ``Retry-After`` unless ``on_conflict`` is a function; 400 for an invalid name. A backend without stripes raises
    ``LockNotSupported``. The decorator raises ``TypeError`` for an object that is not a view, a field of ``name`` that
    is no argument and an unknown option; ``ValueError`` for fewer than 1 or more than 256 stripes.
    """
    if not isinstance(name, str):
        raise TypeError('the first argument of locked_view() is the name of the lock: @locked_view("stock:{sku}")')
    if not (callable(on_conflict) or (type(on_conflict) is int and 200 <= on_conflict <= 599)):
        raise TypeError(f"on_conflict must be an HTTP status or a function of request and error, not {on_conflict!r}")
    if stripes is not None:
        check_stripes(stripes)
    check_options("locked_view", options)
    if options.get("blocking", True):
        options.setdefault("blocking_timeout", 0)

    def respond_for(view: Any) -> Respond:
        name_of = namer(name, view, "request", follow_wrapped=not poses_as_method(view))
        return ViewLock(name_of, using, on_conflict, stripes, options).respond

    return lambda view: protect(view, "locked_view", respond_for)


class ViewLock(NamedTuple):
    """The options of one `locked_view`. ``name_of``: derives the lock's name from the arguments of the view."""

    name_of: Callable[..., str]
    using: str
    on_conflict: OnConflict
    stripes: int | None
    options: LockKwargs

    async def respond(
        self, style: Blocking, protected: ProtectedRequest, proceed: Any, request: Any, args: Any, kwargs: Any
    ) -> Any:
        """Return the response of the view, or of `answer` if the lock is not acquired."""
        try:
            lock = self.lock_for(request, args, kwargs)
        except SynchronousOnlyOperation:  # the name reads the database, as ``request.user`` does
            lock = await style.query(self.lock_for, request, args, kwargs)
        held: Lock | None = None
        try:
            async with AsyncExitStack() as stack:
                request.lock = held = await style.enter(stack, lock)
                protected.locks = (*protected.locks, lock)
                return await proceed()
        except (LockNotAcquired, LockUnavailable) as error:
            # The error may be about another lock, which the view uses. `switch()` raises it if no stripe is free.
            if not (held is None or (isinstance(held, Striped) and held.token is None and error.name == held.name)):
                raise
            return await style.call(self.answer, request, error)

    def lock_for(self, request: Any, args: Any, kwargs: Any) -> Lock:
        """Return the lock for ``request``, not yet acquired. Raises ``BadRequest`` for an invalid name."""
        # The request is the first argument; its parameter may have any name.
        try:
            name = self.name_of(request, *args, **kwargs, request=request)
        except LookupError as error:
            raise BadRequest(f"the request has no {error}, which is part of the lock's name") from error
        try:
            check_name(name if self.stripes is None else stripe_name(name, self.stripes))
        except ValueError as error:
            raise BadRequest(str(error)) from error
        backend = locks[self.using]
        if self.stripes is None:
            return backend.lock(name, **self.options)
        return backend.striped(name, self.stripes, **cast("CommonOptions", self.options))

    def answer(self, request: HttpRequest, error: LockNotAcquired | LockUnavailable) -> Any:
        """Return the response to a request whose lock was not acquired because of ``error``.

        Returns an awaitable if ``on_conflict`` is a coroutine function.
        """
        if isinstance(error, LockUnavailable):
            logger.error("%s %s: %s", request.method, request.path, error)
            return _retry_later(503, "The service is not available now.", None)
        if callable(self.on_conflict):
            return self.on_conflict(request, error)
        return _retry_later(self.on_conflict, "Another request is being worked on.", error.retry_after)


def _retry_later(status: int, text: str, seconds: float | None) -> HttpResponse:
    wait = RETRY_AFTER if seconds is None else max(1, math.ceil(seconds))
    headers = {"Retry-After": str(wait), "Cache-Control": "no-store"}
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)
