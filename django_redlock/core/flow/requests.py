"""The requests that a flow yields. A flow is a generator that does no I/O: its driver sends the replies into it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from ..values import Claim
from .scripts import Script

T = TypeVar("T")
Flow = Generator[Any, Any, T]


class EvalScript(NamedTuple):
    """Run a script on a node. The reply is the script's, or a `Fault`.

    ``compensation`` makes the request that is sent on the same connection when the reply will not be read (timeout,
    cancellation). The compensation releases a late grant, which would otherwise last for a ttl.
    """

    script: Script
    keys: Sequence[bytes]
    args: Sequence[bytes]
    node: int = 0
    compensation: Callable[[], EvalScript] | None = None

    @property
    def compensate(self) -> EvalScript | None:
        return self.compensation and self.compensation()

    def at(self, node: int) -> EvalScript:
        """Return this request for ``node``."""
        return EvalScript(self.script, self.keys, self.args, node, self.compensation)


class BlockThenEval(NamedTuple):
    """Block on the list ``wake_key`` for at most ``seconds``, then run ``script_call``, in one round trip.

    ``more_keys``: further lists to block on.
    """

    script_call: EvalScript
    wake_key: bytes
    seconds: float
    more_keys: Sequence[bytes] = ()


class Block(NamedTuple):
    """Block on the list ``key`` for at most ``seconds``. The reply is ``None`` without a wake-up.

    ``more_keys``: further lists to block on.
    """

    key: bytes
    seconds: float
    node: int = 0
    more_keys: Sequence[bytes] = ()


class EvalAndWait(NamedTuple):
    """Run scripts, then WAIT for ``replicas`` acknowledgements for at most ``seconds``, in one round trip.

    The reply is ``(replies, number of acknowledgements)`` or a `Fault`.
    """

    script_calls: Sequence[EvalScript]
    replicas: int
    seconds: float


class SendToAll(NamedTuple):
    """Send all requests, one for each node, before any reply is read. Then read replies until ``decided(replies)``.

    The reply is a list of replies, `Fault`s, and ``None`` for replies that were not waited for. Requests with one
    ``acquisition_id`` reach a node in the order in which they were made, even while an earlier reply is outstanding.
    Requests whose reply is outstanding in the end get no compensation: an algorithm may have counted on them.
    """

    requests: Sequence[EvalScript | Batch]
    decided: Callable[[Sequence[Any]], bool]
    acquisition_id: bytes


class Batch(NamedTuple):
    """Run scripts on one node in one pipeline. The reply is a list of replies and `Fault`s."""

    script_calls: Sequence[EvalScript]
    node: int = 0


class Command(NamedTuple):
    """Send one command (SCAN, PING, INFO) to a node. ``pool``: a server of a Cluster; ``None``: any server."""

    words: Sequence[bytes]
    node: int = 0
    key: bytes | None = None
    pool: Any = None


class Sleep(NamedTuple):
    """Wait for ``seconds``."""

    seconds: float


class CallFunction(NamedTuple):
    """Call a function of a store that is not Redis. The reply is its result.

    ``undo``, which must not block, is called after ``function`` if the task that waits for the result was cancelled.
    """

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    undo: Callable[[], Any] | None = None


class AwaitWakeUp(NamedTuple):
    """Wait for at most ``seconds`` until another try of ``claim`` may succeed, in a store that is not Redis."""

    claim: Claim
    seconds: float


class Fault(NamedTuple):
    """The error in place of a reply.

    ``stale``: a pooled connection was closed; the request may be repeated on a new one, and may have been carried out.
    ``where``: the server. ``transient``: the same or another server may serve soon, in ``retry_after`` seconds if that
    is known. ``migrating``: the keys are moving to another server. ``refused``: the server replied with an error.
    """

    error: Exception
    stale: bool = False
    where: str = ""
    transient: bool = False
    retry_after: float = 0.0
    migrating: bool = False
    refused: bool = False
