"""The errors of requests: a clear message with a hint, the kind of error, and its chain of causes."""

from __future__ import annotations

import re

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

WRONG_SERVER = AskError, ClusterDownError, ReadOnlyError, TryAgainError  # another server serves the key, or will soon
NOT_SERVING = ClusterDownError, ReadOnlyError  # the server was demoted, or is cut off from the Cluster
# Before authentication Redis rejects long requests as an attack, with the first of these words. redis-py drops NOAUTH.
_NO_PASSWORD = "unauthenticated", "NOAUTH", "Authentication required"
# redis-py recognises neither "-READONLY", which a script raised before Redis 7, nor NOREPLICAS.
_TAKES_NO_WRITES = re.compile("-READONLY|NOREPLICAS")
_REASONS = {AuthenticationError: "authentication", ReadOnlyError: "read only", ResponseError: "refused"}


def plain_error(error: Exception, late: bool, connected: bool, tls: bool) -> Exception:
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


def fault_reason(error: Exception, late: bool) -> str:
    """Return the kind of ``error`` in one or two words, for a ``"fault"`` event. ``late``: whether it is a timeout."""
    if late:
        return "timeout"
    return next((word for kind, word in _REASONS.items() if isinstance(error, kind)), "connection")


# ── chains of errors ─────────────────────────────────────────────────────────────────────────


def caused_by(error: Exception, cause: BaseException | None) -> Exception:
    error.__cause__ = cause
    return error


def timed_out(error: BaseException | None) -> bool:
    return isinstance(error, TimeoutError | RedisTimeoutError)


def forget_callers(error: BaseException | None) -> None:
    """Remove what refers to callers from ``error`` and its causes: the tracebacks and the contexts.

    A `Fault` may be kept after the call has ended. Its tracebacks would keep the callers' lock handles alive, and their
    leases would be renewed. The context may be an exception that the application handles, and that is unrelated.
    """
    seen: set[int] = set()  # two errors may be each other's cause
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        cause = error.__cause__
        error.__traceback__ = error.__context__ = None
        error = cause


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
