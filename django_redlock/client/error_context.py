"""Examines and shortens the chain of an error: the exceptions that led to it (``__context__`` and ``__cause__``)."""

from __future__ import annotations

import ssl
from typing import TypeVar

from redis.exceptions import TimeoutError as RedisTimeoutError

E = TypeVar("E", bound=BaseException)
_BLOCKED = TimeoutError, RedisTimeoutError, BlockingIOError, ssl.SSLWantReadError


def without_context(error: E, handled: BaseException | None) -> E:
    """Return ``error``, after removing ``handled`` and its causes from its chain.

    ``handled`` is ``sys.exception()`` before the request: an exception that the caller handles. Python adds it to the
    chain of each error that is raised meanwhile, although it has nothing to do with the request.
    """
    each: BaseException = error
    while (context := each.__context__) is not None:
        if context is handled:
            each.__context__ = None
        else:
            each = context
    return error


def as_reply(error: E) -> E:
    """Return ``error``, an error reply that redis-py has raised, without traceback and context.

    The traceback would keep the callers' lock handles alive. The context is an exception that the caller handles.
    """
    error.__context__ = None
    return error.with_traceback(None)


def caused_by(error: Exception, cause: Exception | None) -> Exception:
    """Return ``error`` with ``cause`` as its cause."""
    error.__cause__ = cause
    return error


def timed_out(error: BaseException | None) -> bool:
    """Return whether ``error`` is a timeout, or was raised while a timeout was handled (``__context__``)."""
    while error is not None:
        if isinstance(error, _BLOCKED):
            return True
        error = error.__context__
    return False


def forget_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of ``error`` and of the errors that caused it. Does nothing for ``None``.

    A `Fault` may be kept after the call has ended. Its tracebacks would keep the callers' lock handles alive, and the
    leases would be renewed.
    """
    seen: set[int] = set()  # two errors may be each other's cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__, error = None, error.__cause__ or error.__context__
