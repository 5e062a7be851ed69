"""`protect` wraps a view for `locked_view` and `idempotent`. `ProtectedRequest` is the state of one request to it.

A request first acquires the locks, then begins the transactions of ``ATOMIC_REQUESTS``, then runs the view. The
innermost decorator begins the transactions, and checks the locks of all decorators before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature, unwrap
from typing import Any, NamedTuple

from asgiref.sync import iscoroutinefunction
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.utils.decorators import classonlymethod

from ..call_styles import Awaiting, Blocking, complete, run_to_end
from ..core.locks.lock import Lock
from ..errors import LockLost
from ..transactions import in_atomic

Respond = Callable[..., Coroutine[Any, Any, Any]]
_REQUEST = "_redlock_request"  # the attribute of a request that holds its `ProtectedRequest`
_DECORATED = "_redlock_decorated"  # the attribute of a view that holds its `Decorated`


@dataclass(slots=True)
class ProtectedRequest:
    """The state of one request. The outermost decorator attaches it to the request, and inner decorators use it."""

    locks: tuple[Lock, ...] = ()  # held for the view
    begun: bool = False  # the view has begun, with all its locks: a client that disconnects no longer cancels it
    returned: bool = False  # the view has returned: an error that follows, as of the commit, leaves the outcome unknown
    stored: bool = False  # the answer will be stored

    def end_of_view(self, response: Any) -> None:
        """Check after the view and before the commit whether the transaction may be committed.

        Raises ``LockLost`` and ``TransactionManagementError``.
        """
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
    """Raise ``TransactionManagementError`` if the view reports success, but its transaction is marked for rollback.

    A status of 400 and above does not report success: Django REST framework rolls back for each error that it handles.
    """
    status = getattr(response, "status_code", 0)
    if status >= 400:
        return
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block and connection.needs_rollback:
            raise TransactionManagementError(
                f"the view has returned status {status}, but its transaction on {connection.alias!r} can only be "
                "rolled back: an error of the database was caught inside the atomic() block, or set_rollback(True) was "
                "called. Put the statement that may fail into an atomic() block of its own, or return an error status"
            )


class AllDatabases:
    """The ``_non_atomic_requests`` of a protected view, so that Django begins no transaction around the view.

    Contains the aliases of all databases, also of those that a project adds later.
    """

    def __contains__(self, alias: object) -> bool:
        return True

    def add(self, alias: str) -> None:
        raise TypeError("put transaction.non_atomic_requests below locked_view() and idempotent()")


class Decorated(NamedTuple):
    """The names of this package's decorators on a view, and the databases for which ``ATOMIC_REQUESTS`` is disabled."""

    decorators: tuple[str, ...]
    non_atomic: frozenset[str]

    @classmethod
    def of(cls, view: Any) -> Decorated:
        found: Decorated | None = getattr(view, _DECORATED, None)
        return found or cls((), frozenset(getattr(view, "_non_atomic_requests", ())))

    def atomic_requests(self) -> list[str]:
        """Return the aliases of the databases whose ``ATOMIC_REQUESTS`` apply to the view."""
        entries = connections.settings.items()
        return [alias for alias, entry in entries if entry["ATOMIC_REQUESTS"] and alias not in self.non_atomic]


def protect(view: Any, decorator: str, respond_for: Callable[[Any], Respond]) -> Any:
    """Return ``view``, a function or a class, with one more decorator. An async view runs to its end once it has begun.

    If the client disconnects, Django cancels the view's coroutine, but not the view's threads, which still need the
    lock. ``respond_for``: returns the decorator's coroutine function for a view. Its arguments are a `Blocking` or
    `Awaiting`, the `ProtectedRequest`, ``proceed`` and the view's arguments, its result is the response. ``await
    proceed()`` returns the response of the inner decorators and the view. Raises ``TypeError`` for an object that is
    not a view.
    """
    if isinstance(view, type):
        return _decorate_class(view, lambda function: protect(function, decorator, respond_for), decorator)
    _check_view(view, decorator)
    respond, inside = respond_for(view), Decorated.of(view)

    async def work(style: Blocking, protected: ProtectedRequest, request: Any, args: Any, kwargs: Any) -> Any:
        async def proceed() -> Any:
            with ExitStack() as transactions:
                if not inside.decorators:
                    for alias in inside.atomic_requests():
                        transactions.enter_context(transaction.atomic(using=alias))
                    protected.begun = True
                response = await style.call(partial(view, request, *args, **kwargs))
                if not inside.decorators:
                    protected.end_of_view(response)
                return response

        return await respond(style, protected, proceed, request, args, kwargs)

    @wraps(view)
    def call(request: Any, *args: Any, **kwargs: Any) -> Any:
        with _attached(request, decorator, inside) as protected:
            return complete(work(Blocking(), protected, request, args, kwargs))

    @wraps(view)
    async def acall(request: Any, *args: Any, **kwargs: Any) -> Any:
        if inside.atomic_requests():
            raise RuntimeError("You cannot use ATOMIC_REQUESTS with async views.")  # as Django does
        outermost = not hasattr(request, _REQUEST)
        with _attached(request, decorator, inside) as protected:
            coroutine = work(Awaiting(), protected, request, args, kwargs)
            if outermost:  # the view runs in the task that holds the locks: it must not wait for one of them
                return await run_to_end(coroutine, cancellable=lambda: not protected.begun)
            return await coroutine

    wrapper: Any = acall if is_async(view) else call
    wrapper._non_atomic_requests = AllDatabases()
    setattr(wrapper, _DECORATED, Decorated((decorator, *inside.decorators), inside.non_atomic))
    return wrapper


@contextmanager
def _attached(request: Any, decorator: str, inside: Decorated) -> Iterator[ProtectedRequest]:
    """Context manager that returns the `ProtectedRequest` of ``request``.

    Raises ``TypeError`` if ``request`` is not a request, or if a transaction of ``ATOMIC_REQUESTS`` is already open.
    That transaction would end after the release of the lock, or after the answer was stored.
    """
    if not hasattr(request, "META"):
        kind = type(request).__name__
        raise TypeError(f"{decorator}() got {kind} instead of a request: {right_place(decorator)}")
    for alias in inside.atomic_requests():
        if in_atomic(connections[alias]):
            raise TypeError(
                f"the transaction of ATOMIC_REQUESTS on {alias!r} is outside of {decorator}(): {right_place(decorator)}"
            )
    if (found := getattr(request, _REQUEST, None)) is not None:
        yield found
        return
    setattr(request, _REQUEST, made := ProtectedRequest())
    try:
        yield made
    finally:
        delattr(request, _REQUEST)


# ── what can be decorated: functions, class-based views, and methods that method_decorator() passes ──────────────────


def right_place(decorator: str) -> str:
    return (
        f"put {decorator}() on the view function, on the class (@{decorator}(...) above `class`), or on dispatch: "
        f'@method_decorator({decorator}(...), name="dispatch")'
    )


def is_async(view: Any) -> bool:
    # `dispatch` of an async class-based view is a plain method that returns the coroutine of the handler.
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))


def poses_as_method(view: Any) -> bool:
    """Return whether ``view`` takes the request first, although the function that it wraps takes ``self`` first.

    Examples are the partial that ``method_decorator()`` passes, the function that ``as_view()`` returns when
    ``dispatch`` is decorated, and a view of a ViewSet of Django REST framework.
    """
    # Another decorator in the list of the same method_decorator() may have wrapped the partial.
    return _hides_method(unwrap(view, stop=_hides_method))


def _hides_method(view: Any) -> bool:
    return isinstance(view, partial) or hasattr(view, "view_class") or hasattr(view, "cls")


def _check_view(view: Any, decorator: str) -> None:
    if not callable(view) or isinstance(view, classmethod | staticmethod):
        raise TypeError(f"{view!r} is not a view: {right_place(decorator)}")
    if not poses_as_method(view) and next(iter(signature(view).parameters), "") in ("self", "cls"):
        raise TypeError(f"{view.__qualname__} is a method: {right_place(decorator)}")


def _decorate_class(view: Any, decorate: Callable[[Any], Any], decorator: str) -> Any:
    if not callable(getattr(view, "as_view", None)):
        raise TypeError(f"{view.__qualname__} has no as_view(): {right_place(decorator)}")
    inherited = view.as_view.__func__

    def as_view(cls: Any, /, *args: Any, **initkwargs: Any) -> Any:
        return decorate(inherited(cls, *args, **initkwargs))

    view.as_view = classonlymethod(wraps(inherited)(as_view))
    return view
