"""Makes a `Fault` from the error of a request: a clear message, and whether a retry may help."""

from __future__ import annotations

import re
import ssl
from typing import Any, TypeVar

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..core.events import report_fault
from ..core.flow.replies import UnreadableReply
from ..core.flow.requests import EvalScript, Fault
from .connection import AllInUse, ConnectionSilent
from .nodes.node import Node

E = TypeVar("E", bound=BaseException)
_BLOCKED = TimeoutError, RedisTimeoutError, BlockingIOError, ssl.SSLWantReadError
WRONG_SERVER = AskError, ClusterDownError, ReadOnlyError, TryAgainError  # another server serves the key, or will soon
NOT_SERVING = ClusterDownError, ReadOnlyError  # the server was demoted, or is cut off from the Cluster
# Before authentication Redis rejects long requests as an attack, with the first of these words. redis-py drops NOAUTH.
_NO_PASSWORD = "unauthenticated", "NOAUTH", "Authentication required"
# redis-py recognises neither "-READONLY", which a script raised before Redis 7, nor NOREPLICAS.
_TAKES_NO_WRITES = re.compile("-READONLY|NOREPLICAS")
_REASONS = {AuthenticationError: "authentication", ReadOnlyError: "read only", ResponseError: "refused"}


def record_fault(node: Node, error: Exception, connected: bool = False, where: str = "") -> Fault:
    """Return the `Fault` for ``error``, and record it. After most errors ``node`` looks for its server again.

    ``where``: the server's address. ``connected``: whether the connection was open before the error. ``error`` must not
    have an exception of the caller in its chain (`without_context`). The fault is ``stale``, which means that the
    request may be repeated at once, if the server has closed the connection, an idle connection is silent, or the
    server takes no writes (READONLY, NOREPLICAS).

    ``node`` keeps the server after `AllInUse`, and after a `ResponseError` other than READONLY, NOREPLICAS and
    CLUSTERDOWN. After every other error ``node`` forgets the server, and the next request looks for it again.
    """
    late = timed_out(error)
    silent = isinstance(error, ConnectionSilent)
    closed = connected and type(error) is RedisConnectionError and not late
    error = _plain_error(error, late, connected, node.tls)
    if isinstance(error, AskError) and not node.is_cluster:  # or its subclass `MovedError`
        text = "it belongs to a Redis Cluster: use redis+cluster:// (rediss+cluster:// with TLS) as LOCATION"
        error = caused_by(ResponseError(text), error)
    refused = isinstance(error, ResponseError)
    if not (refused or isinstance(error, AllInUse)) or isinstance(error, NOT_SERVING):
        node.invalidate(where)
    report_fault(node.label, _reason(error, late))
    elsewhere = not refused or isinstance(error, WRONG_SERVER) or str(error).startswith("BUSY ")
    transient = "UNBLOCKED" in str(error) or (node.fails_over and elsewhere)
    stale, migrating = silent or closed or isinstance(error, ReadOnlyError), isinstance(error, TryAgainError)
    forget_frames(error)
    return Fault(
        error, stale, where or node.label, transient, 0.0, migrating, refused, unconfirmed=connected and not refused
    )


def check_reply(node: Node, call: EvalScript, reply: Any, where: str = "") -> Any:
    """Return ``reply``, or a `Fault` for an error and for a type that the package's scripts don't return.

    The scripts return integers and arrays. Scripts without a compensation (``call.compensation``) may also return nil.
    ``where``: the server's address, for the `Fault`.
    """
    if type(reply) in (int, list) or (reply is None and call.compensation is None):
        return reply
    if isinstance(reply, Exception):
        return record_fault(node, reply, where=where)
    return record_fault(node, UnreadableReply(reply), connected=True, where=where)


def _plain_error(error: Exception, late: bool, connected: bool, tls: bool) -> Exception:
    """Return ``error``, or a clearer error with ``error`` as its cause if the reason is known.

    ``late``: whether ``error`` is a timeout. ``connected``: whether the connection was open before the error. ``tls``:
    whether the connection uses TLS.
    """
    clearer: Exception | None = None
    if late:
        no_tls = "; a server without TLS does not answer a TLS handshake" if tls and not connected else ""
        clearer = TimeoutError(f"no reply in time{no_tls}")
    elif any(words in str(error) for words in _NO_PASSWORD):
        clearer = AuthenticationError(
            "it requires a password, and LOCATION has none (for Sentinels: sentinel_password)"
        )
    elif not connected and isinstance(error.__cause__, ConnectionResetError | BrokenPipeError):
        # The server sends the reason, then closes. The reason is lost if the client has already written (asyncio does).
        hint = hint_of(error, tls)
        clearer = RedisConnectionError(
            f"it closed the connection at once, as a server does at its maxclients limit{hint}"
        )
    elif _TAKES_NO_WRITES.search(str(error)):  # a replica, or a master whose replicas may have moved to another
        clearer = ReadOnlyError(f"{error}{hint_of(error, tls)}")
    elif hint := hint_of(error, tls):
        clearer = type(error)(f"{error}{hint}")
    return caused_by(clearer, error) if clearer else error


def _reason(error: Exception, late: bool) -> str:
    """Return the kind of ``error`` in one or two words, for a ``"fault"`` event. ``late``: whether it is a timeout."""
    if late:
        return "timeout"
    return next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "connection")


# ── chains of errors ─────────────────────────────────────────────────────────────────────────


def without_context(error: E, handled: BaseException | None) -> E:
    """Return ``error``, after removing ``handled`` and its causes from its chain.

    ``handled``: ``sys.exception()`` before the request, an exception that the caller handles. Python adds it to the
    chain of later errors, although it is unrelated to the request.
    """
    each: BaseException = error
    while (context := each.__context__) is not None:
        if context is handled:
            each.__context__ = None
        else:
            each = context
    return error


def caused_by(error: Exception, cause: BaseException | None) -> Exception:
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
    """Remove the tracebacks of ``error`` and of its causes. Has no effect on ``None``.

    A `Fault` may be kept after the call has ended. Its tracebacks would keep the callers' lock handles alive, and their
    leases would be renewed.
    """
    seen: set[int] = set()  # two errors may be each other's cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__, error = None, error.__cause__ or error.__context__


_CLOSED_AT_ONCE = "closed by server before its first reply", "reset by peer"
_HINTS = (  # the words of an error, whether the connection uses TLS (None: either), and what may help
    (_CLOSED_AT_ONCE, False, "a server with TLS needs rediss:// as the scheme"),
    ((*_CLOSED_AT_ONCE, "EOF occurred"), True, "it may require a certificate: ssl_certfile and ssl_keyfile"),
    (("SELECT is not allowed",), None, "a Redis Cluster has database 0 only: LOCATION must name no other"),
    (("read only replica",), None, "LOCATION must name the primary, or the Sentinels or the Cluster that know it"),
    (
        ("Unknown Redis command called from script", "not allowed from script"),
        None,
        "in scripts, only quarantine needs INFO: use quarantine=False",
    ),
    (
        ("unknown command 'EVAL", "unknown command `EVAL", "unknown command 'eval", "unknown command `eval"),
        None,
        "locks need Lua scripts, which this server or proxy does not run: see the page about managed Redis",
    ),
)


def hint_of(error: Exception, tls: bool) -> str:
    """Return a hint against ``error`` in parentheses; ``""`` if there is none or if the message contains it.

    ``tls``: whether the connection uses TLS.
    """
    text = str(error)
    for words, only_tls, hint in _HINTS:
        if only_tls in (None, tls) and any(word in text for word in words) and hint not in text:
            return f" ({hint})"
    return ""
