"""`ProtectedRequest`: one request to a view with `locked_view`, `idempotent` or both. `protect` makes such a view.

The order, from the outside: locks, transactions of ``ATOMIC_REQUESTS``, view. The innermost decorator opens the
transactions. Before their commit it checks the locks of all decorators.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import Any, NamedTuple

from django.core.handlers.base import BaseHandler
from django.db import connections
from django.db.transaction import TransactionManagementError

from ..call_styles import Awaiting, Blocking, complete, run_to_end
from ..core.locks.lock import Lock
from ..errors import LockLost
from ..transactions import in_atomic
from .view_kinds import check_view, decorate_class, is_async, right_place

_REQUEST = "_redlock_request"  # the attribute of a request that holds its `ProtectedRequest`
Respond = Callable[..., Coroutine[Any, Any, Any]]
_DECORATED = "_redlock_decorated"  # the attribute of a view that holds its `Decorated`


class ProtectedRequest:
    """The state of one request. The outermost decorator attaches it to the request; the others find it there.

    ``locks``: held for the view. ``begun``: the view has its locks, so a client that disconnects no longer cancels it.
    ``returned``: the view has returned. An error that follows, of the commit for example, leaves its outcome unknown.
    ``stored``: the answer will be stored.
    """

    def __init__(self) -> None:
        self.locks: tuple[Lock, ...] = ()
        self.begun = self.returned = self.stored = False

    def end_of_view(self, response: Any) -> None:
        """Check between the view and the commit whether the work may be committed."""
        self.returned = True
        self.check_locks()
        if self.stored:
            check_commit(response)

    def check_locks(self) -> None:
        """Raise ``LockLost`` if a lock was lost while the view ran."""
        for lock in self.locks:
            if lock.lost and lock.options.raises_loss:
                raise LockLost(lock.name)


def check_commit(response: Any) -> None:
    """Raise ``TransactionManagementError`` if the view reports success and its transaction can only be rolled back.

    An answer of 400 and above says that nothing was done: Django REST framework rolls back for each error that it
    handles.
    """
    status = getattr(response, "status_code", 400)
    for connection in connections.all(initialized_only=True):
        if status < 400 and connection.in_atomic_block and connection.needs_rollback:
            raise TransactionManagementError(
                f"the view has returned status {status}, but its transaction on {connection.alias!r} can only be "
                "rolled back: an error of the database was caught inside the atomic() block, or set_rollback(True) was "
                "called. Put the statement that may fail into an atomic() block of its own, or return an error status"
            )


class EveryAlias(frozenset[str]):
    """The ``_non_atomic_requests`` of a protected view: Django opens no transaction outside of it."""

    def __contains__(self, alias: object) -> bool:
        return True

    def add(self, alias: str) -> None:
        raise TypeError("put transaction.non_atomic_requests below locked_view() and idempotent()")


class Decorated(NamedTuple):
    """The names of this package's decorators on a view, and the databases of which it wants no ``ATOMIC_REQUESTS``."""

    decorators: tuple[str, ...]
    non_atomic: frozenset[str]

    @classmethod
    def of(cls, view: Any) -> Decorated:
        found: Decorated | None = getattr(view, _DECORATED, None)
        return found or cls((), frozenset(getattr(view, "_non_atomic_requests", ())))


def protect(view: Any, decorator: str, respond_for: Callable[[Any], Respond]) -> Any:
    """Return ``view``, a function or a class, with one more decorator. An async view that has begun runs to its end.

    A client that disconnects cancels the coroutine of its view, but not the view's threads, which still need the lock.
    ``respond_for``: returns the coroutine function of the decorator for a view. It gets the `Blocking` or `Awaiting`
    calls, the `ProtectedRequest`, ``proceed`` and the view's arguments, and returns the response. ``await proceed()``
    returns the response of the decorators inside and of the view. Raises ``TypeError`` for an object that is no view.
    """
    if isinstance(view, type):
        return decorate_class(view, lambda function: protect(function, decorator, respond_for), decorator)
    check_view(view, decorator)
    respond, inside = respond_for(view), Decorated.of(view)

    def run_view(protected: ProtectedRequest, request: Any, args: Any, kwargs: Any) -> Any:
        if inside.decorators:
            return view(request, *args, **kwargs)

        def work() -> Any:
            response = view(request, *args, **kwargs)
            protected.end_of_view(response)
            return response

        async def awork() -> Any:
            response = await view(request, *args, **kwargs)
            protected.end_of_view(response)
            return response

        run: Any = awork if is_async(view) else work
        run._non_atomic_requests = inside.non_atomic
        return BaseHandler().make_view_atomic(run)()

    async def work(calls: Blocking, protected: ProtectedRequest, request: Any, args: Any, kwargs: Any) -> Any:
        async def proceed() -> Any:
            response = run_view(protected, request, args, kwargs)
            return await response if isawaitable(response) else response

        return await respond(calls, protected, proceed, request, args, kwargs)

    @wraps(view)
    def call(request: Any, *args: Any, **kwargs: Any) -> Any:
        _check_call(request, decorator, inside)
        with _attached(request) as (protected, _):
            return complete(work(Blocking(), protected, request, args, kwargs))

    @wraps(view)
    async def acall(request: Any, *args: Any, **kwargs: Any) -> Any:
        _check_call(request, decorator, inside)
        with _attached(request) as (protected, outermost):
            coroutine = work(Awaiting(), protected, request, args, kwargs)
            return await (run_to_end(coroutine, lambda: not protected.begun) if outermost else coroutine)

    wrapper: Any = acall if is_async(view) else call
    wrapper._non_atomic_requests = EveryAlias()
    setattr(wrapper, _DECORATED, Decorated((decorator, *inside.decorators), inside.non_atomic))
    return wrapper


@contextmanager
def _attached(request: Any) -> Iterator[tuple[ProtectedRequest, bool]]:
    """Context manager with the `ProtectedRequest` of ``request``, and whether this decorator is the outermost."""
    if (found := getattr(request, _REQUEST, None)) is not None:
        yield found, False
        return
    made = ProtectedRequest()
    setattr(request, _REQUEST, made)
    try:
        yield made, True
    finally:
        delattr(request, _REQUEST)


def _check_call(request: Any, decorator: str, inside: Decorated) -> None:
    """Raise ``TypeError`` if the decorator got another object than a request, or runs inside ``ATOMIC_REQUESTS``.

    That transaction would end too late: after the lock was released, or after the answer was stored.
    """
    if not hasattr(request, "META"):
        kind = type(request).__name__
        raise TypeError(f"{decorator}() got {kind} instead of a request: {right_place(decorator)}")
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"] and alias not in inside.non_atomic and in_atomic(connections[alias]):
            raise TypeError(
                f"the transaction of ATOMIC_REQUESTS on {alias!r} is outside of {decorator}(): {right_place(decorator)}"
            )
