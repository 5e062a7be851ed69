"""The requests that a flow yields.

A flow is a generator without I/O. Its driver performs each request, and sends the reply into the flow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from ..process.caller import WakeEvent
from .scripts import Script

T = TypeVar("T")
Flow = Generator[Any, Any, T]


class EvalScript(NamedTuple):
    """A request: run a Lua script on a node. The reply is the script's reply, or a `Fault`.

    ``node``: the index of the node, from 0. ``compensation``: returns the request that releases a late grant, which
    would otherwise hold the lock for a ttl. It is sent on the same connection if the reply will not be read, after a
    timeout or a cancellation.
    """

    script: Script
    keys: Sequence[bytes]
    args: Sequence[bytes]
    node: int = 0
    compensation: Callable[[], EvalScript] | None = None

    def at(self, node: int) -> EvalScript:
        """Return this request for the node with the index ``node``."""
        return EvalScript(self.script, self.keys, self.args, node, self.compensation)


class SetIfAbsent(NamedTuple):
    """A request: set ``key`` to ``value`` for ``ttl_ms`` milliseconds if it is absent.

    The reply is ``True`` if the key was set, ``None`` if it exists, and a `Fault` if the server did not reply. The
    reply is also ``None`` after any other reply of the server, such as an error; the key may then be set. ``node`` and
    ``compensation``: as in `EvalScript`.
    """

    key: bytes
    value: bytes
    ttl_ms: bytes
    node: int = 0
    compensation: Callable[[], EvalScript] | None = None


class BlockThenEval(NamedTuple):
    """A request: block on the lists ``wake_keys`` for at most ``seconds``, then run ``call``, in one round trip.

    The reply is the script's reply, alone or in an `AfterBlock`, or a `Fault`.
    """

    call: EvalScript
    wake_keys: Sequence[bytes]
    seconds: float


class AfterBlock(NamedTuple):
    """The reply to a `BlockThenEval`.

    ``reply``: the script's reply. ``seconds``: the time from the request to the run of the script, measured by one
    clock.
    """

    reply: Any
    seconds: float


class Block(NamedTuple):
    """A request: block on the lists ``keys`` until an element arrives in one of them, for at most ``seconds``.

    The reply is a pair, the key of the list and the element; ``None`` if no element arrived in time; or a `Fault`.
    """

    keys: Sequence[bytes]
    seconds: float
    node: int = 0


class EvalAndWait(NamedTuple):
    """A request: run scripts, then WAIT up to ``seconds`` for ``replicas`` acknowledgements, in one round trip.

    The reply is a pair: the list of the scripts' replies, and the number of acknowledgements. A failed part is a
    `Fault`. If the server did not reply or accepts no writes, the reply is a `Fault`, not a pair.
    """

    calls: Sequence[EvalScript]
    replicas: int
    seconds: float


class SendToAll(NamedTuple):
    """A request: send ``requests`` to their nodes, all at the same time, and read replies until ``decided(replies)``.

    The reply is a list with one entry for each request: the node's reply, a `Fault`, or ``None`` if the reply was not
    awaited. ``decided``: gets the list of replies, with ``None`` for each outstanding reply, and returns whether to
    stop reading. No compensation (see `EvalScript`) is sent for an entry ``None``, because its grant may count as a
    vote.

    ``acquisition_id``: the claim's; ``b""`` if the requests are not for a single claim. Requests for the same claim
    reach a node in the order in which they were sent, even while an earlier reply is outstanding.

    ``kind``: ``"acquire"``, ``"release"`` or ``""`` for any other request. A release is repeated in the background for
    each node that has not replied. ``deadline``: the time (monotonic seconds) until which an acquire, or its undo, may
    wait for other requests of the same event loop, in addition to the node timeout.
    """

    requests: Sequence[EvalScript | Batch]
    decided: Callable[[Sequence[Any]], bool]
    acquisition_id: bytes
    kind: Literal["acquire", "release", ""] = ""
    deadline: float = math.inf


class Batch(NamedTuple):
    """A request: run scripts on one node in one pipeline.

    The reply is a list with one entry for each script: its reply, or a `Fault`.
    """

    calls: Sequence[EvalScript]
    node: int = 0


class Command(NamedTuple):
    """A request: send one command (SCAN, PING, INFO) to a server of a node. ``words``: the command and its arguments.

    ``pool``: the pool of the server. Without ``pool``, the server that has ``key`` is used; without ``key``, any server
    of the node.
    """

    words: Sequence[bytes]
    node: int = 0
    key: bytes | None = None
    pool: Any = None


class ListPools(NamedTuple):
    """A request: find all servers of a node. The reply is a list with the pool of each server, or a `Fault`."""

    node: int = 0


class Sleep(NamedTuple):
    """A request: wait for ``seconds``."""

    seconds: float


class AwaitEvent(NamedTuple):
    """A request: wait until another thread or task of this process sets ``event``, for at most ``seconds``."""

    event: WakeEvent
    seconds: float


class CallFunction(NamedTuple):
    """A request: call a function of a store that is not Redis. The reply is its result.

    ``undo``, which must not block, is called after ``function`` if the task that waits for the result was cancelled.
    """

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    undo: Callable[[], Any] | None = None


RedisRequest = SetIfAbsent | EvalScript | BlockThenEval | Block | EvalAndWait | SendToAll | Batch | Command | ListPools
FlowRequest = RedisRequest | CallFunction | Sleep | AwaitEvent  # all requests that a driver performs


class Fault(NamedTuple):
    """The error that a driver sends into a flow in place of a reply.

    - ``stale``: a pooled connection was closed or silent, or the server takes no writes: the request may be repeated.
    - ``where``: the address of the server.
    - ``transient``: a retry may succeed soon, in ``retry_after`` seconds if this is not 0.
    - ``migrating``: the keys are moving to another server.
    - ``refused``: the server replied with an error.
    - ``unconfirmed``: the request may have been carried out, because it was sent and its reply was lost.
    """

    error: Exception
    stale: bool = False
    where: str = ""
    transient: bool = False
    retry_after: float = 0.0
    migrating: bool = False
    refused: bool = False
    unconfirmed: bool = False
