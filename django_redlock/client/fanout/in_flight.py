"""`InFlightConnection`: a connection to one node of a quorum on which replies may be outstanding."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from ...core.flow.requests import Batch, EvalScript, Fault
from ..connection import Connection
from ..nodes.node import Node
from ..pool import ServerPool
from ..resp import encode_eval, encode_evalsha

READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


def calls_of(request: EvalScript | Batch) -> Sequence[EvalScript]:
    """Return the script calls in ``request``: one for an `EvalScript`, several for a `Batch`."""
    return (request,) if isinstance(request, EvalScript) else request.calls


class InFlightConnection:
    """A connection to one node of a quorum, with the scripts of the last request and the outstanding replies."""

    def __init__(self, node: Node, pool: ServerPool, connection: Connection) -> None:
        self.node = node
        self.pool = pool
        self.connection = connection
        self.calls: Sequence[EvalScript] = ()
        self.kind = ""  # the kind of the last request, as in `SendToAll`
        self.sent_at = 0.0
        self.compensation: Callable[[], EvalScript] | None = None
        self.kept_for_release = False
        self._due = 0  # outstanding replies, also to earlier requests

    def send(self, calls: Sequence[EvalScript], now: float, kind: str = "") -> None:
        """Send ``calls`` at ``now`` (monotonic seconds), without waiting for the replies. Raises redis-py's errors."""
        self.calls, self.sent_at, self.kind = calls, now, kind
        self._due += len(calls)
        self.compensation = calls[0].compensation
        self.connection.send(b"".join(map(self._encode, calls)))

    def _encode(self, call: EvalScript) -> bytes:
        # The source is sent with the first use on a connection, because a reply NOSCRIPT might not be read.
        loaded = self.connection.loaded
        if call.script.sha in loaded:
            return _encode_once(call.script, call.keys, call.args)
        loaded.add(call.script.sha)
        return encode_eval(call)

    def detach(self) -> None:
        """Stop waiting for replies. No compensation is sent, because a late grant may count as a vote for the lease.

        After an acquire, the connection is reserved for the release of that acquisition, so that the release can't
        overtake the acquire.
        """
        self.kept_for_release = self.compensation is not None  # only an acquire has one
        self.compensation = None

    def receive(self, until: float = 0.0) -> list[Any]:
        """Read all outstanding replies by ``until`` (monotonic seconds), and return the replies to the last `send`.

        ``until`` 0: don't wait. An error reply becomes a `Fault` in the list. Raises redis-py's errors, and
        `ReplyIncomplete` if replies are missing at the deadline; the call may then be repeated.
        """
        replies = self.connection.receive(self._due, until)[-len(self.calls) :]
        self._due = 0
        if any(isinstance(reply, NoScriptError) for reply in replies):  # after SCRIPT FLUSH
            self.compensation = None  # it could arrive after the repeated request
            raise RedisConnectionError("the server has forgotten its scripts")  # a new connection sends their sources
        return [self.node.check_reply(*each, self.pool.where) for each in zip(self.calls, replies, strict=True)]

    def fileno(self) -> int:
        return self.connection.fileno()

    def is_readable(self) -> bool:
        """Return whether data has arrived or the connection was closed. Does not wait."""
        poll = select.poll()
        poll.register(self.fileno(), READABLE)
        return bool(poll.poll(0))

    def checkin(self) -> None:
        """Return the connection to its pool. No reply may be outstanding."""
        self.pool.checkin(self.connection)

    def discard(self) -> None:
        """Close the connection, after sending the compensation of the last request, if any."""
        self.pool.discard(self.connection, encode_eval(self.compensation()) if self.compensation else None)

    def fail(self, error: Exception) -> Fault:
        """Close the connection because of ``error``, after sending the last request's compensation, if any.

        Returns the `Fault` for ``error``.
        """
        self.discard()
        return self.node.record_fault(error, connected=True, where=self.pool.where)


@lru_cache(maxsize=16)
def _encode_once(script: Any, keys: Any, args: Any) -> bytes:
    """Return the EVALSHA command in RESP. The command is cached, so a request to all nodes is encoded only once."""
    return encode_evalsha(EvalScript(script, keys, args))
