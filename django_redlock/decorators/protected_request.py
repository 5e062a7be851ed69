"""`ProtectedRequest`: one request to a view with `locked_view`, `idempotent` or both. `protect` makes such a view.

The order, from the outside: locks, transactions of ``ATOMIC_REQUESTS``, view. The innermost decorator opens the
transactions. Before their commit it checks the locks of all decorators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from typing import Any, ClassVar

from django.core.handlers.base import BaseHandler
from django.db import connections
from django.db.transaction import TransactionManagementError

from ..call_styles import Awaiting, Blocking, complete
from ..core.locks.lock import Lock
from ..errors import LockLost
from ..transactions import in_atomic
from .uncancelled import run_to_end
from .view_kinds import is_async, right_place

_REQUEST = "_redlock_request"  # the attribute of a request that holds its `ProtectedRequest`
_DECORATORS = "_redlock_decorators"  # the attribute of a view with the names of its decorators, the outermost first


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

    @contextmanager
    def holding(self, lock: Lock) -> Iterator[None]:
        """Context manager in which `check_locks` checks ``lock``."""
        outer, self.locks, self.begun = self.locks, (*self.locks, lock), True
        try:
            yield
        finally:
            self.locks = outer


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


class Decoration:
    """The options of one decorator, and what it does with a request."""

    decorator: ClassVar[str]  # the name of the decorator, for errors
    protects: ClassVar[str]  # what must enclose the transaction, for errors

    def check_request(self, request: Any) -> None:
        """Raise ``TypeError`` if the decorator got another object than a request."""
        raise NotImplementedError

    async def respond(
        self, calls: Blocking, protected: ProtectedRequest, request: Any, args: Any, kwargs: Any, proceed: Any
    ) -> Any:
        """Return the response. ``await proceed()`` returns the response of the decorators inside and of the view."""
        raise NotImplementedError


def protect(view: Callable[..., Any], decoration: Decoration) -> Any:
    """Return ``view`` with one more decorator. An async view that has begun runs to its end in any case.

    A client that disconnects cancels the coroutine of its view, but not the view's threads, which still need the lock.
    """
    inside, opted_out = decorators_of(view), _opted_out(view)

    def run_view(protected: ProtectedRequest, request: Any, args: Any, kwargs: Any) -> Any:
        if inside:
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
        run._non_atomic_requests = set(opted_out)
        return BaseHandler().make_view_atomic(run)()

    async def respond(calls: Blocking, protected: ProtectedRequest, request: Any, args: Any, kwargs: Any) -> Any:
        async def proceed() -> Any:
            response = run_view(protected, request, args, kwargs)
            return await response if isawaitable(response) else response

        _check_place(decoration, opted_out)
        return await decoration.respond(calls, protected, request, args, kwargs, proceed)

    @wraps(view)
    def call(request: Any, *args: Any, **kwargs: Any) -> Any:
        decoration.check_request(request)
        with _attached(request) as (protected, _):
            return complete(respond(Blocking(), protected, request, args, kwargs))

    @wraps(view)
    async def acall(request: Any, *args: Any, **kwargs: Any) -> Any:
        decoration.check_request(request)
        with _attached(request) as (protected, outermost):
            work = respond(Awaiting(), protected, request, args, kwargs)
            return await (run_to_end(work, cancellable=lambda: not protected.begun) if outermost else work)

    wrapper: Any = acall if is_async(view) else call
    wrapper._non_atomic_requests = opted_out
    setattr(wrapper, _DECORATORS, (decoration.decorator, *inside))
    return wrapper


def decorators_of(view: Any) -> tuple[str, ...]:
    """Return the names of this package's decorators on ``view``, the outermost first."""
    names: tuple[str, ...] = getattr(view, _DECORATORS, ())
    return names


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


class _OptedOut(set[str]):
    """The aliases for which a view has opted out of ``ATOMIC_REQUESTS``, as ``_non_atomic_requests`` of the view.

    Django asks with ``in`` whether to open no transaction outside the view: so for each alias, because the innermost
    decorator opens them.
    """

    def __contains__(self, alias: object) -> bool:
        return True


def _opted_out(view: Any) -> _OptedOut:
    """Return the database aliases that ``view`` excludes from ``ATOMIC_REQUESTS``.

    Decorators above ours may still add aliases to the returned set. A decorator above ``method_decorator()`` adds its
    aliases to a set that all views with the same method share. Raises ``TypeError`` if that set has an alias with
    ``ATOMIC_REQUESTS``, because the views that have not opted out would run without their transactions.
    """
    own = getattr(view, "_non_atomic_requests", ())
    owner, method = getattr(getattr(view, "func", None), "__self__", None), getattr(view, "__name__", "")
    shared = getattr(getattr(type(owner), method, None), "_non_atomic_requests", None)
    if isinstance(shared, _OptedOut) and not set(shared).isdisjoint(_atomic_aliases()):
        raise TypeError(
            f"transaction.non_atomic_requests is above the decorators of {type(owner).__qualname__}.{method}, "
            "where it would count for every view that shares this method: put it below them"
        )
    return own if isinstance(own, _OptedOut) else _OptedOut(own)


def _check_place(decoration: Decoration, opted_out: _OptedOut) -> None:
    """Raise ``TypeError`` if the decorator runs inside a transaction of ``ATOMIC_REQUESTS``.

    The transaction would end too late: after the lock was released, or after the answer was stored.
    """
    for alias in _atomic_aliases():
        if alias not in set(opted_out) and in_atomic(connections[alias]):
            place = right_place(decoration.decorator)
            raise TypeError(
                f"the transaction of ATOMIC_REQUESTS on {alias!r} is outside {decoration.protects}: {place}"
            )


def _atomic_aliases() -> list[str]:
    return [alias for alias, settings in connections.settings.items() if settings["ATOMIC_REQUESTS"]]
