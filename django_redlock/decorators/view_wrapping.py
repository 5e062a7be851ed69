"""What `locked_view` and `idempotent` share: kinds of views, the place of a decorator, and transactions of Django."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import signature
from typing import Any, Self

from asgiref.sync import iscoroutinefunction
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.db.transaction import TransactionManagementError
from django.utils.decorators import classonlymethod

from ..core.locks.lock import Lock
from ..errors import LockLost
from ..transactions import in_atomic

_RIGHT_PLACE = (
    "put {0}() on the view function, on the class (@{0}(...) above `class`), or on dispatch: "
    '@method_decorator({0}(...), name="dispatch")'
)
IDEMPOTENT = "_redlock_idempotent"  # the attribute of a view with `idempotent`
AFTER_VIEW = "_redlock_after_view"  # the attribute of an error that was raised after the view
LOCKS = "_redlock_locks"  # the attribute of a request with the locks that are held for its view
NOT_RUN = "_redlock_not_run"  # the attribute of a response to a request for which the view did not run


def right_place(decorator: str) -> str:
    return _RIGHT_PLACE.format(decorator)


def check_place(decorator: str, inner: str, opted_out: set[str]) -> None:
    """Raise ``TypeError`` if the decorator runs inside a transaction of ``ATOMIC_REQUESTS``.

    The transaction would end too late: after the lock was released, or after the answer was stored. ``decorator``: name
    of the decorator that is in the wrong place. ``inner``: what the transaction must not enclose ("the lock" or "the
    stored answer"), for the error's text. ``opted_out``: the database aliases that the view excludes from
    ``ATOMIC_REQUESTS``.
    """
    for alias, settings in connections.settings.items():
        if settings["ATOMIC_REQUESTS"] and alias not in opted_out and in_atomic(connections[alias]):
            place = right_place(decorator)
            raise TypeError(f"the transaction of ATOMIC_REQUESTS on {alias!r} is outside {inner}: {place}")


class EveryAlias(set[str]):
    """A set whose ``in`` is true for every database alias, so that Django opens no transaction outside the lock.

    Its members are the aliases for which the view has opted out of ``ATOMIC_REQUESTS``.
    """

    def __contains__(self, alias: object) -> bool:
        return True


def opted_out_aliases(view: Any) -> EveryAlias:
    """Return the database aliases that ``view`` excludes from ``ATOMIC_REQUESTS``.

    Decorators above ours may still add aliases to the returned set. A decorator above ``method_decorator()`` adds its
    aliases to a set that all views with the same method share. Raises ``TypeError`` if that set has an alias with
    ``ATOMIC_REQUESTS``, because the views that have not opted out would run without their transactions.
    """
    own = getattr(view, "_non_atomic_requests", ())
    owner, method = getattr(getattr(view, "func", None), "__self__", None), getattr(view, "__name__", "")
    shared = getattr(getattr(type(owner), method, None), "_non_atomic_requests", None)
    if isinstance(shared, EveryAlias) and any(
        settings["ATOMIC_REQUESTS"] for alias, settings in connections.settings.items() if alias in set(shared)
    ):
        raise TypeError(
            f"transaction.non_atomic_requests is above the decorators of {type(owner).__qualname__}.{method}, "
            "where it would count for every view that shares this method: put it below them"
        )
    return own if isinstance(own, EveryAlias) else EveryAlias(own)


def in_transactions(work: Any, opted_out: EveryAlias, inner: bool) -> Any:
    """Return ``work``, a function that calls the view, wrapped in the transactions of ``ATOMIC_REQUESTS``.

    ``opted_out``: the database aliases without a transaction. ``inner``: a decorator inside this one opens the
    transactions, so none is opened here. An error that is raised after ``work``, by the commit or after it, gets the
    attribute `AFTER_VIEW`. Raises Django's ``RuntimeError`` if ``work`` is async and a database has
    ``ATOMIC_REQUESTS``.
    """
    work._non_atomic_requests = opted_out if inner else set(opted_out)
    if iscoroutinefunction(work):
        return BaseHandler().make_view_atomic(work)
    late = LateErrors()

    @wraps(work)
    def noted() -> Any:
        result = work()
        late.view_returned = True
        return result

    def run() -> Any:
        with late:
            return atomic()

    atomic = BaseHandler().make_view_atomic(noted)
    return run


class LateErrors:
    """Context manager that marks an error with the attribute `AFTER_VIEW` if the view had returned before the error.

    The user of the context sets ``view_returned`` when the view returns.
    """

    view_returned = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self.view_returned and error is not None:
            setattr(error, AFTER_VIEW, True)


@contextmanager
def holding(request: Any, lock: Lock) -> Iterator[None]:
    """Context manager in which `check_locks` checks ``lock``, as well as the locks of decorators outside."""
    outer = getattr(request, LOCKS, ())
    setattr(request, LOCKS, (*outer, lock))
    try:
        yield
    finally:
        setattr(request, LOCKS, outer)


def check_locks(request: Any) -> None:
    """Raise ``LockLost`` if a lock of ``request`` was lost while the view ran. The error has `AFTER_VIEW`.

    Each decorator that commits the view's transactions calls it between the view and the commit.
    """
    for lock in getattr(request, LOCKS, ()):
        if lock.lost and lock.options.on_lost == "raise":
            error = LockLost(lock.name)
            setattr(error, AFTER_VIEW, True)
            raise error


def check_commit(status: int) -> None:
    """Raise ``TransactionManagementError`` if the view reports success and its transaction can only be rolled back.

    An answer of 400 and above says that nothing was done: Django REST framework rolls back for each error that it
    handles.
    """
    for connection in connections.all(initialized_only=True):
        if status < 400 and connection.in_atomic_block and connection.needs_rollback:
            raise TransactionManagementError(
                f"the view has returned status {status}, but its transaction on {connection.alias!r} can only be "
                "rolled back: an error of the database was caught inside the atomic() block, or set_rollback(True) was "
                "called. Put the statement that may fail into an atomic() block of its own, or return an error status"
            )


def is_async(view: Any) -> bool:
    # `dispatch` of an async class-based view is a plain method that returns the coroutine of the handler.
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return iscoroutinefunction(view) or bool(getattr(owner, "view_is_async", False))


def decorate_class(view: Any, decorate: Callable[[Any], Any], decorator: str = "locked_view") -> Any:
    if not callable(getattr(view, "as_view", None)):
        raise TypeError(f"{view.__qualname__} has no as_view(): {right_place(decorator)}")
    inherited = view.as_view.__func__

    def as_view(cls: Any, /, *args: Any, **initkwargs: Any) -> Any:
        return decorate(inherited(cls, *args, **initkwargs))

    view.as_view = classonlymethod(wraps(inherited)(as_view))
    return view


def check_view(view: Any, decorator: str = "locked_view") -> None:
    if not callable(view) or isinstance(view, classmethod | staticmethod):
        raise TypeError(f"{view!r} is not a view: {right_place(decorator)}")
    if not poses_as_method(view) and next(iter(signature(view).parameters), "") in ("self", "cls"):
        raise TypeError(f"{view.__qualname__} is a method: {right_place(decorator)}")


def poses_as_method(view: Any) -> bool:
    """Return whether ``view`` takes the request first, although the method in its ``__wrapped__`` takes ``self`` first.

    Examples are the partial that ``method_decorator()`` passes, the function that ``as_view()`` returns when
    ``dispatch`` is decorated, and a view of a ViewSet of Django REST framework.
    """
    return isinstance(view, partial) or hasattr(view, "view_class") or hasattr(view, "cls")
