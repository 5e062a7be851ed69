"""Reads the replies of scripts and the faults of stores, in the same way for every algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...errors import LockError, LockUnavailable
from ..owner import LONGEST
from ..values import Claim, Lease, Refusal
from .requests import Fault

T = TypeVar("T")
ARM_HINT = "if the servers are new and no lock is held on them: manage.py redlock_check --arm, or backend.arm()"
ACL_HINT = (
    "the docs list what a user of Redis' ACL needs; INFO is for the quarantine only: quarantine=False does without it"
)


class NotServing(Exception):
    """A server that replies, but grants nothing at the moment."""


class Quarantined(NotServing):
    """The server may have forgotten a lock that is held."""


class UnreadableReply(Exception):
    """A reply that no script of this package sends: from a server that is not Redis, or from a proxy."""

    def __init__(self, reply: Any) -> None:
        super().__init__(reply)

    def __str__(self) -> str:
        return f"it is no Redis, or something speaks in its place: it answers {self.args[0]!r:.100}"


def parse_reply(name: str, read: Callable[..., T], reply: Any, *more: Any) -> T:
    """``read(reply, *more)``. Raises ``LockUnavailable`` for a reply that no script of this package sends."""
    try:
        return read(reply, *more)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise fault_error(name, unreadable(reply, error)) from error


def unreadable(reply: Any, error: Exception | None = None) -> Fault:
    """The fault for a reply that can't be read."""
    strange = UnreadableReply(reply)
    strange.__cause__ = error
    return Fault(strange)


def refusal_reason(error: LockError) -> str:
    """Why an acquire failed, in one word, for events and metrics."""
    if not isinstance(error, LockUnavailable):
        return "misused"
    return "quarantine" if any(isinstance(each, Quarantined) for each in error.errors.values()) else "unavailable"


def server_time(reply: Any) -> int:
    """The node's clock in µs when it replied to an acquire; 0 if the reply has no time."""
    time = reply[2] if type(reply) is list and len(reply) > 2 else reply
    return time if type(time) is int else 0


def is_grant(reply: Any) -> bool:
    """Whether a reply to an acquire says yes."""
    return reply > 1 if type(reply) is int else type(reply) is list and reply[:1] == [1]


def waited(block: Any, reply: Any) -> Any:
    """The reply to an acquire behind a blocking command; the `Fault` of the command if both were refused.

    Otherwise a server that refuses to block would be asked again at once, without end.
    """
    refused = type(reply) is list and reply[:1] == [0]
    return block if refused and type(block) is Fault and block.refused else reply


def read_outcome(claim: Claim, reply: Any, start: float) -> Lease | Refusal:
    """Read a node's reply to an acquire that was sent at ``start`` or later.

    The server's time in µs, or ``{1, fencing token, time}``: granted. ``{0, lease left in ms, time, owner}``: refused;
    a lease left of -1 is infinite. With several locks one more number is the index of the granted or blocking lock.
    Raises ``LockUnavailable`` for any other reply, also for 1, which other servers and proxies send for "yes".
    """
    if type(reply) is int and reply > 1:
        return Lease.granted(claim, start, reply)
    return parse_reply(claim.name, _outcome, reply, claim, start)


def _outcome(reply: list[Any], claim: Claim, start: float) -> Lease | Refusal:
    granted, number, time, *_ = reply
    if granted not in (0, 1) or type(number) is not int or type(time) is not int:
        raise ValueError(reply)
    if granted == 1:
        return Lease.granted(claim.narrowed_to(reply[3]) if len(reply) > 3 else claim, start, number)
    remaining = math.inf if number == -1 else max(0, number) / 1000
    return Refusal(remaining, reply[3][:LONGEST].decode(errors="replace"), start, time, *reply[4:5])


def fault_error(name: str, fault: Fault) -> LockError:
    """The error for a request without a reply, with its cause chained."""
    if error := misuse_error(fault):
        result = error(name, fault.error)
        result.__cause__ = fault.error
        return result
    return unavailable_error(name, "the store can't be asked", {fault.where: fault.error})


def misuse_error(fault: Fault) -> Callable[[str, Exception], LockError] | None:
    """The function that makes the error if a script has refused misuse; else ``None``."""
    return next((make for word, make in _MISUSE.items() if word in str(fault.error)), None)


def _other_kind(name: str, error: Exception) -> LockError:
    text = str(error).partition(" script: ")[0]
    return LockError(name, f"its key holds something that no lock of this kind wrote ({text:.200})")


def upgrade_error(name: str, error: Exception | None = None) -> LockError:
    """The error for a reader that asks to write: two such readers would wait for each other for ever."""
    del error
    return LockError(name, "a reader can't begin to write: release `read` first, or begin with `write`")


_MISUSE: Mapping[str, Callable[[str, Exception], LockError]] = {"WRONGTYPE": _other_kind, "UPGRADE": upgrade_error}


def unavailable_error(name: str, reason: str, errors: Mapping[str, Exception]) -> LockUnavailable:
    """The error for a store that did not serve, with the error of each node and a hint where there is one."""
    details = "; ".join(f"{where}: {error}" if where else str(error) for where, error in errors.items())
    hint = next((f" ({hint})" for error in errors.values() if (hint := _hint(error))), "")
    result = LockUnavailable(name, f"{reason}: {details}{hint}" if details else reason, errors)
    result.__cause__ = next(iter(errors.values()), None)
    return result


def _hint(error: Exception) -> str:
    if isinstance(error, Quarantined):
        return ARM_HINT
    return ACL_HINT if any(words in str(error) for words in _DENIED) else ""


_DENIED = "executing the script can't run this command", "ACL failure in script"  # up to Redis 7.0, and since
