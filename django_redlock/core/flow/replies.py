"""How the scripts' replies and the stores' faults are to be read: the same under every rule."""

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
    """A server that answers, but makes no new grants now."""


class Quarantined(NotServing):
    """It may have forgotten a lock that is held."""


class UnreadableReply(Exception):
    """An answer that no script of ours gives: something that is no Redis, or that stands before one, has spoken."""

    def __init__(self, reply: Any) -> None:
        super().__init__(reply)

    def __str__(self) -> str:
        return f"it is no Redis, or something speaks in its place: it answers {self.args[0]!r:.100}"


def parse_reply(name: str, read: Callable[..., T], reply: Any, *more: Any) -> T:
    """What ``read`` makes of ``reply``. Raises ``LockUnavailable`` where that is none of our scripts'."""
    try:
        return read(reply, *more)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise fault_error(name, unreadable(reply, error)) from error


def unreadable(reply: Any, error: Exception | None = None) -> Fault:
    """In place of an answer that nobody can read."""
    strange = UnreadableReply(reply)
    strange.__cause__ = error
    return Fault(strange)


def refusal_reason(error: LockError) -> str:
    """Why an acquire failed, in one word, for those who count."""
    if not isinstance(error, LockUnavailable):
        return "misused"
    return "quarantine" if any(isinstance(each, Quarantined) for each in error.errors.values()) else "unavailable"


def server_time(reply: Any) -> int:
    """The node's clock in µs when it answered an acquire; 0 where it doesn't tell."""
    time = reply[2] if type(reply) is list and len(reply) > 2 else reply
    return time if type(time) is int else 0


def is_grant(reply: Any) -> bool:
    """Whether a reply to an acquire says yes."""
    return reply > 1 if type(reply) is int else type(reply) is list and reply[:1] == [1]


def waited(block: Any, reply: Any) -> Any:
    """The reply to an acquire that was sent behind a blocking command; the `Fault` of ``block`` if it was refused too.

    Otherwise a server that refuses to block would be asked again at once, and without an end.
    """
    refused = type(reply) is list and reply[:1] == [0]
    return block if refused and type(block) is Fault and block.refused else reply


def read_outcome(claim: Claim, reply: Any, start: float) -> Lease | Refusal:
    """What a node's reply to an acquire means, if it answered at ``start`` or later.

    The server's time in µs, or ``{1, fencing token, time}``: granted. ``{0, lease left in ms, time, owner}``: taken; a
    lease without an end counts as infinite. Of several locks one more number says which was granted, or is in the way.
    Raises ``LockUnavailable`` for anything else: no clock stands at 1, which is what others say for "yes".
    """
    if type(reply) is int and reply > 1:
        return Lease.granted(claim, start, reply)
    return parse_reply(claim.name, _outcome, reply, claim, start)


def _outcome(reply: list[Any], claim: Claim, start: float) -> Lease | Refusal:
    said, number, time, *_ = reply
    if said not in (0, 1) or type(number) is not int or type(time) is not int:
        raise ValueError(reply)
    if said == 1:
        return Lease.granted(claim.narrowed_to(reply[3]) if len(reply) > 3 else claim, start, number)
    remaining = math.inf if number == -1 else max(0, number) / 1000
    return Refusal(remaining, reply[3][:LONGEST].decode(errors="replace"), start, time, *reply[4:5])


def fault_error(name: str, fault: Fault) -> LockError:
    """The error for a request that got no answer, with its cause chained."""
    if error := misuse_error(fault):
        result = error(name, fault.error)
        result.__cause__ = fault.error
        return result
    return unavailable_error(name, "the store can't be asked", {fault.where: fault.error})


def misuse_error(fault: Fault) -> Callable[[str, Exception], LockError] | None:
    """What makes the error, where a script has refused what nobody may ask for."""
    return next((make for word, make in _MISUSE.items() if word in str(fault.error)), None)


def _other_kind(name: str, error: Exception) -> LockError:
    told = str(error).partition(" script: ")[0]
    return LockError(name, f"its key holds something that no lock of this kind wrote ({told:.200})")


def upgrade_error(name: str, error: Exception | None = None) -> LockError:
    """The error for a reader that asks to write: two of them would wait for each other for ever."""
    del error
    return LockError(name, "who reads can't begin to write: release `read` first, or begin with `write`")


_MISUSE: Mapping[str, Callable[[str, Exception], LockError]] = {"WRONGTYPE": _other_kind, "UPGRADE": upgrade_error}


def unavailable_error(name: str, reason: str, errors: Mapping[str, Exception]) -> LockUnavailable:
    """The error for a store that did not serve, with what each node said, and what to do about it."""
    told = "; ".join(f"{where}: {error}" if where else str(error) for where, error in errors.items())
    hint = next((f" ({hint})" for error in errors.values() if (hint := _hint(error))), "")
    result = LockUnavailable(name, f"{reason}: {told}{hint}" if told else reason, errors)
    result.__cause__ = next(iter(errors.values()), None)
    return result


def _hint(error: Exception) -> str:
    if isinstance(error, Quarantined):
        return ARM_HINT
    return ACL_HINT if any(words in str(error) for words in _DENIED) else ""


_DENIED = "executing the script can't run this command", "ACL failure in script"  # up to Redis 7.0, and since
