"""Faults: why a request has no usable reply, and whether another try may help."""

from __future__ import annotations

import time
from typing import Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from ..core.event_queue import EventRecord, event_queue
from ..core.flow.replies import UnreadableReply
from ..core.flow.requests import EvalScript, Fault
from .deadlines import timed_out
from .discovery import Node

WRONG_SERVER = AskError, ClusterDownError, ReadOnlyError, TryAgainError  # another server serves the key, or will soon
NOT_SERVING = ClusterDownError, ReadOnlyError  # the server was demoted, or is cut off from the Cluster
_REASONS = {AuthenticationError: "authentication", ReadOnlyError: "read only", ResponseError: "refused"}


def fault_of(node: Node, error: Exception, connected: bool = False, where: str = "") -> Fault:
    """The `Fault` for ``error`` from the server at ``where``; the node may look for another server.

    ``connected``: the error came from a connection that had been open. If the server has closed it, the fault is stale:
    the request may be repeated at once. So may a request to a server that has become a replica.
    """
    late = timed_out(error)
    closed = connected and type(error) is RedisConnectionError and not late
    error = _plain_error(error, late, connected)
    refused = isinstance(error, ResponseError)
    if not refused or isinstance(error, NOT_SERVING):
        node.invalidate(error, where)
    event_queue.record(EventRecord(time.time(), "fault", node.label, reason=_reason(error, late)))
    elsewhere = not refused or isinstance(error, WRONG_SERVER) or str(error).startswith("BUSY ")
    transient = "UNBLOCKED" in str(error) or (node.fails_over and elsewhere)
    stale, migrating = closed or isinstance(error, ReadOnlyError), isinstance(error, TryAgainError)
    forget_frames(error)
    return Fault(error, stale, where or node.label, transient, migrating=migrating, refused=refused)


def check_reply(node: Node, call: EvalScript, reply: Any, where: str = "") -> Any:
    """A script's reply, or a `Fault` for a reply that none of our scripts gives. An acquire never replies nil."""
    if type(reply) in (int, list) or (reply is None and call.compensation is None):
        return reply
    return fault_of(node, UnreadableReply(reply), where=where)


def forget_frames(error: BaseException | None) -> None:
    """Drop the tracebacks of an error and its causes.

    A fault is kept for a while. Its frames would keep the callers' locks alive, and these would be renewed.
    """
    seen: set[int] = set()  # two errors may be each other's cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__, error = None, error.__cause__ or error.__context__


def _plain_error(error: Exception, late: bool, connected: bool) -> Exception:
    """``error``, or an error that says better what was wrong, caused by ``error``."""
    if late:
        error = _caused_by(error, TimeoutError("no answer in time"))
    if "unauthenticated" in str(error) or "NOAUTH" in str(error):
        # Before authentication Redis rejects our long requests as an attack, without naming the password.
        error = _caused_by(error, AuthenticationError("it wants a password, and LOCATION has none"))
    if not connected and isinstance(error.__cause__, ConnectionResetError | BrokenPipeError):
        # The server sends its reason before it closes. The reason is lost if we had written by then, as asyncio does.
        error = _caused_by(
            error, RedisConnectionError("it hung up at once, as one does that has reached its maxclients")
        )
    if "-READONLY" in str(error):  # raised inside a script, before Redis 7; redis-py does not recognise it
        error = _caused_by(error, ReadOnlyError(str(error)))
    return error


def _reason(error: Exception, late: bool) -> str:
    """The kind of an error in one word, for counters."""
    if late:
        return "timeout"
    return next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "connection")


def _caused_by(cause: Exception, error: Exception) -> Exception:
    error.__cause__ = cause
    return error
