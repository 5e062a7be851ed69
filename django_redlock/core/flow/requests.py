"""What a flow asks for. A flow is a generator: it yields these, is sent the replies, and does no I/O of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from ..values import Claim
from .scripts import Script

T = TypeVar("T")
Flow = Generator[Any, Any, T]


class EvalScript(NamedTuple):
    """Run a script on a node; answered by its reply or a `Fault`.

    ``undo`` is sent behind it on the same connection when nobody will read the reply (time out, cancellation), so that
    a grant that comes late doesn't stay as a lock that nobody owns. It is rarely wanted: ``undoing`` makes it.
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
        """The same on another node."""
        return EvalScript(self.script, self.keys, self.args, node, self.compensation)


class BlockThenEval(NamedTuple):
    """Block on ``signal`` (a wake-up list) for ``seconds`` at most, then run ``run`` at once, in one round trip.

    ``more``: other lists on which to block at the same time.
    """

    script_call: EvalScript
    wake_key: bytes
    seconds: float
    more_keys: Sequence[bytes] = ()


class Block(NamedTuple):
    """Block on a wake-up list for ``seconds`` at most; answered by something when woken, else by ``None``.

    ``more``: other lists on which to block at the same time.
    """

    key: bytes
    seconds: float
    node: int = 0
    more_keys: Sequence[bytes] = ()


class EvalAndWait(NamedTuple):
    """Run scripts and wait for ``replicas`` acknowledgements of them, ``seconds`` at most, in one round trip.

    Answered by ``(replies, number of acknowledgements)`` or a `Fault`.
    """

    script_calls: Sequence[EvalScript]
    replicas: int
    seconds: float


class SendToAll(NamedTuple):
    """Send each of ``asks`` (runs or batches, one for each node) before any reply is read, then read until ``decided``.

    Answered by the list of replies, `Fault`s, and ``None`` for those that were not waited for. Requests of one
    ``family`` reach a node in the order in which they were made, also when an earlier reply is still outstanding. What
    is outstanding when the outcome is certain is not undone: it may have been counted on meanwhile.
    """

    requests: Sequence[EvalScript | Batch]
    decided: Callable[[Sequence[Any]], bool]
    acquisition_id: bytes


class Batch(NamedTuple):
    """Run many scripts on one node in one pipeline; answered by a list of replies and `Fault`s."""

    script_calls: Sequence[EvalScript]
    node: int = 0


class Command(NamedTuple):
    """Send one plain command (SCAN, PING, INFO) to a node; ``route`` names one server of a cluster, ``None`` any."""

    words: Sequence[bytes]
    node: int = 0
    key: bytes | None = None
    pool: Any = None


class Sleep(NamedTuple):
    """Let ``seconds`` pass."""

    seconds: float


class CallFunction(NamedTuple):
    """Call a plain function of a store that has no wire; answered by what it returns.

    ``undo`` is called after it, and doesn't block, when a cancelled task doesn't wait for the answer.
    """

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    undo: Callable[[], Any] | None = None


class AwaitWakeUp(NamedTuple):
    """Wait ``seconds`` at most until ``claim`` may be worth another try, in a store that has no wire."""

    claim: Claim
    seconds: float


class Fault(NamedTuple):
    """No reply: what went wrong instead.

    ``stale`` tells that a connection from an earlier request turned out to be closed: the request may be repeated at
    once on a new one, but it is unknown whether it has been carried out. ``passing`` that the same or another server
    may serve soon, in ``left`` seconds if that is known. ``moving`` that the keys are on their way from one to another.
    ``refused`` that the server has answered, with an error.
    """

    error: Exception
    stale: bool = False
    where: str = ""
    transient: bool = False
    retry_after: float = 0.0
    migrating: bool = False
    refused: bool = False
