"""``@locked_view("stock:{sku}")``: one request at a time, and its transaction within the lock."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from functools import partial, wraps
from inspect import isawaitable, signature
from typing import Any, NamedTuple, TypeVar, Unpack

from asgiref.sync import iscoroutinefunction
from django.core.exceptions import BadRequest
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import classonlymethod

from ..core.events import logger
from ..core.keys import check_name, stripe_name
from ..core.locks.lock import Lock
from ..core.locks.striped import Striped, check_stripes
from ..errors import LockLost, LockNotAcquired, LockUnavailable
from ..handler import DEFAULT_ALIAS, locks
from ..name_templates import namer
from ..shortcuts import LockKwargs, check_options
from ..transactions import in_atomic
from .uncancelled import run_to_end

V = TypeVar("V", bound=Callable[..., Any])
OnConflict = int | Callable[[HttpRequest, LockNotAcquired], Any]

RETRY_AFTER = 5  # seconds, where nobody can say when the lock or the store will be there
_RIGHT_PLACE = (
    "put locked_view() on the view function, on the class (@locked_view(...) above `class`), or on dispatch: "
    '@method_decorator(locked_view(...), name="dispatch")'
)


class LockedRequest(HttpRequest):
    """Annotates the request of a locked view: ``request.lock`` is the lock that is held. Never instantiated."""

    lock: Lock


class StripedRequest(HttpRequest):
    """The same with ``stripes=N``: ``request.lock.stripe`` is the index. Never instantiated."""

    lock: Striped


def locked_view(
    name: str,
    *,
    using: str = DEFAULT_ALIAS,
    on_conflict: OnConflict = 409,
    stripes: int | None = None,
    **options: Unpack[LockKwargs],
) -> Callable[[V], V]:
    """Hold a lock, ``request.lock``, while a view answers: a function, sync or async, or a class with ``as_view``.

    ``name`` may have arguments of the view in it: ``"stock:{sku}"``, ``"cart:{request.user.pk}"``. ``using`` is the
    lock backend's alias; the other options are those of its ``lock()``, with ``blocking_timeout=0``: nobody waits.

    The lock is taken before the transactions that ``ATOMIC_REQUESTS`` asks for, and released after they have been
    committed. When it was lost meanwhile they are rolled back, and ``LockLost`` is raised. An async view that holds the
    lock runs to its end, also when the client disconnects.

    Taken by another: status ``on_conflict``, or the response of ``on_conflict(request, error)``. The store can't be
    asked: 503. Both with ``Retry-After`` in seconds. A name that can't be one, or needs what the request lacks: 400.

    ``stripes=N`` takes any free one of N locks; ``request.lock.stripe`` is its index, and ``request.lock.switch()``
    goes on to another one. When all others are taken, a view that lets ``LockNotAcquired`` pass is answered for as
    above. ``LockNotSupported`` where the backend has no stripes.

    Raises ``TypeError`` for what is no view, for fields of ``name`` that are no arguments, and for unknown options,
    ``ValueError`` unless there are 1 to 256 stripes.
    """
    if not isinstance(name, str):
        raise TypeError('locked_view() begins with the name of the lock: @locked_view("stock:{sku}")')
    if not (callable(on_conflict) or (type(on_conflict) is int and 200 <= on_conflict <= 599)):
        raise TypeError(f"on_conflict is an HTTP status or a function of request and error, not {on_conflict!r}")
    if stripes is not None:
        check_stripes(stripes)
    check_options("locked_view", options)
    if options.get("blocking", True):
        options.setdefault("blocking_timeout", 0)

    def decorate(view: Any) -> Any:
        if isinstance(view, type):
            return _on_class(view, decorate)
        _check_view(view)
        name_of = namer(name, view, "request", follow_wrapped=not _poses_as_method(view))
        return _wrap(view, ViewLock(name_of, using, on_conflict, stripes, options))

    return decorate


class ViewLock(NamedTuple):
    """What comes before a view and what comes instead of it."""

    name_of: Callable[..., str]
    using: str
    on_conflict: OnConflict
    stripes: int | None
    options: LockKwargs

    def lock_for(self, request: Any, args: Any, kwargs: Any, opted_out: set[str]) -> Lock:
        """The lock for this request. Raises ``BadRequest`` for a bad name, ``TypeError`` in the wrong place."""
        if not hasattr(request, "META"):
            raise TypeError(f"locked_view() got {type(request).__name__} instead of a request: {_RIGHT_PLACE}")
        for alias, settings in connections.settings.items():
            if settings["ATOMIC_REQUESTS"] and alias not in opted_out and in_atomic(connections[alias]):
                raise TypeError(f"the transaction of ATOMIC_REQUESTS on {alias!r} is outside the lock: {_RIGHT_PLACE}")
        # The request is the first argument, whatever the view calls it.
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
        return backend.striped(name, self.stripes, **self.options)

    def is_missed(self, held: Lock | None, error: LockNotAcquired | LockUnavailable) -> bool:
        """Whether the view has not got its lock, or no other stripe of it; else it is an error of another lock."""
        return held is None or (isinstance(held, Striped) and held.token is None and error.name == held.name)

    def answer(self, request: HttpRequest, error: LockNotAcquired | LockUnavailable) -> Any:
        """The response without a lock; an awaitable, where ``on_conflict`` is a coroutine function."""
        if isinstance(error, LockUnavailable):
            logger.error("%s %s: %s", request.method, request.path, error, exc_info=error)
            return _retry_later(503, "The service is not available now.", None)
        if callable(self.on_conflict):
            return self.on_conflict(request, error)
        return _retry_later(self.on_conflict, "Another request is being worked on.", error.retry_after)


def _retry_later(status: int, text: str, seconds: float | None) -> HttpResponse:
    wait = RETRY_AFTER if seconds is None else max(1, math.ceil(seconds))
    headers = {"Retry-After": str(wait), "Cache-Control": "no-store"}
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8", headers=headers)


class EveryAlias(set[str]):
    """Says that it has every database alias, so that Django opens no transaction outside the lock.

    Holds those for which the view has opted out of ``ATOMIC_REQUESTS``.
    """

    def __contains__(self, alias: object) -> bool:
        return True


def _wrap(view: Callable[..., Any], guard: ViewLock) -> Callable[..., Any]:
    opted_out = EveryAlias(getattr(view, "_non_atomic_requests", ()))

    @wraps(view)
    def call(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with ExitStack() as stack:
            lock, held = guard.lock_for(request, args, kwargs, set(opted_out)), None

            def work() -> HttpResponseBase:
                response: HttpResponseBase = view(request, *args, **kwargs)
                _check(lock)
                return response

            try:
                held = request.lock = stack.enter_context(lock)
                response: HttpResponseBase = _atomic(work, opted_out)()
            except (LockNotAcquired, LockUnavailable) as error:
                if not guard.is_missed(held, error):
                    raise
                response = guard.answer(request, error)
            return response

    @wraps(view)
    async def acall(request: Any, *args: Any, **kwargs: Any) -> HttpResponseBase:
        held: Lock | None = None

        async def respond() -> HttpResponseBase:
            nonlocal held
            async with AsyncExitStack() as stack:
                lock = guard.lock_for(request, args, kwargs, set(opted_out))

                async def work() -> HttpResponseBase:
                    response: HttpResponseBase = await view(request, *args, **kwargs)
                    _check(lock)
                    return response

                try:
                    held = request.lock = await stack.enter_async_context(lock)
                    response: HttpResponseBase = await _atomic(work, opted_out)()
                except (LockNotAcquired, LockUnavailable) as error:
                    if not guard.is_missed(held, error):
                        raise
                    answer = guard.answer(request, error)
                    response = await answer if isawaitable(answer) else answer
                return response

        # A client that disconnects cancels this, but not the threads that the view has started: the lock is theirs.
        return await run_to_end(respond(), cancellable=lambda: held is None)

    wrapper: Any = acall if _is_async(view) else call
    wrapper._non_atomic_requests = opted_out
    return wrapper  # type: ignore[no-any-return]


def _atomic(work: Any, opted_out: set[str]) -> Any:
    """``work`` in the transactions that ``ATOMIC_REQUESTS`` asks for; Django's own error where the view is async."""
    work._non_atomic_requests = set(opted_out)
    return BaseHandler().make_view_atomic(work)


def _check(lock: Lock) -> None:
    if lock.lost and lock.options.on_lost == "raise":
        raise LockLost(lock.name)


def _is_async(view: Any) -> bool:
    # `dispatch` of an async class-based view is a plain method that returns what the handler's coroutine function does.
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))


def _on_class(view: Any, decorate: Callable[[Any], Any]) -> Any:
    if not callable(getattr(view, "as_view", None)):
        raise TypeError(f"{view.__qualname__} has no as_view(): {_RIGHT_PLACE}")
    inherited = view.as_view.__func__

    def as_view(cls: Any, /, *args: Any, **initkwargs: Any) -> Any:
        return decorate(inherited(cls, *args, **initkwargs))

    view.as_view = classonlymethod(wraps(inherited)(as_view))
    return view


def _check_view(view: Any) -> None:
    if not callable(view) or isinstance(view, classmethod | staticmethod):
        raise TypeError(f"{view!r} is no view: {_RIGHT_PLACE}")
    if not _poses_as_method(view) and next(iter(signature(view).parameters), "") in ("self", "cls"):
        raise TypeError(f"{view.__qualname__} is a method: {_RIGHT_PLACE}")


def _poses_as_method(view: Any) -> bool:
    """Whether ``view`` may have a method in ``__wrapped__``, `self` included, though it takes the request first.

    So does what method_decorator() hands over, and what as_view() returns when `dispatch` is decorated, or of a
    ViewSet of Django REST framework.
    """
    return isinstance(view, partial) or hasattr(view, "view_class") or hasattr(view, "cls")
