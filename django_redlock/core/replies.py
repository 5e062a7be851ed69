"""How the scripts' replies and the stores' faults are to be read: the same under every rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import LockError, LockUnavailable
from .lease import Claim, Lease, Refusal
from .requests import Fault

HINT = "if the servers are new and no lock is held on them: manage.py redlock_check --arm, or backend.arm()"


class NotServing(Exception):
    """A server that answers, but makes no new grants now."""


class Quarantined(NotServing):
    """It may have forgotten a lock that is held."""


def reason_of(error: LockError) -> str:
    """Why an acquire failed, in one word, for those who count."""
    if not isinstance(error, LockUnavailable):
        return "misused"
    return "quarantine" if any(isinstance(each, Quarantined) for each in error.errors.values()) else "unavailable"


def server_time(reply: Any) -> int:
    """The node's clock in µs when it answered an acquire."""
    time: int = reply if type(reply) is int else reply[2]
    return time


def outcome_of(claim: Claim, reply: Any, start: float) -> Lease | Refusal:
    """What a node's reply to an acquire means, if it answered at ``start`` or later.

    The server's time in µs, or ``{1, fencing token, time}``: granted. ``{0, lease left in ms, time, owner}``: taken; a
    lease without an end counts as infinite. Of several locks one more number says which was granted, or is in the way.
    """
    if type(reply) is int:
        return Lease.granted(claim, start, reply)
    if reply[0] == 1:
        return Lease.granted(claim.chosen(reply[3]) if len(reply) > 3 else claim, start, reply[1])
    left = reply[1]
    remaining = math.inf if left == -1 else max(0, left) / 1000
    return Refusal(remaining, reply[3].decode(errors="replace"), start, reply[2], *reply[4:5])


def trouble(name: str, fault: Fault) -> LockError:
    """The error for a request that got no answer, with its cause chained."""
    if error := misused(fault):
        result = error(name, fault.error)
        result.__cause__ = fault.error
        return result
    return unavailable(name, "the store can't be asked", {fault.where: fault.error})


def misused(fault: Fault) -> Callable[[str, Exception], LockError] | None:
    """What makes the error, where a script has refused what nobody may ask for."""
    return next((make for word, make in _MISUSE.items() if word in str(fault.error)), None)


def _other_kind(name: str, error: Exception) -> LockError:
    told = str(error).partition(" script: ")[0]
    return LockError(name, f"its key holds something that no lock of this kind wrote ({told})")


def no_upgrade(name: str, error: Exception | None = None) -> LockError:
    """The error for a reader that asks to write: two of them would wait for each other for ever."""
    del error
    return LockError(name, "who reads can't begin to write: release `read` first, or begin with `write`")


_MISUSE: Mapping[str, Callable[[str, Exception], LockError]] = {"WRONGTYPE": _other_kind, "UPGRADE": no_upgrade}


def unavailable(name: str, reason: str, errors: Mapping[str, Exception]) -> LockUnavailable:
    """The error for a store that did not serve, with what each node said, and what to do if the servers are new."""
    told = "; ".join(f"{where}: {error}" if where else str(error) for where, error in errors.items())
    hint = f" ({HINT})" if any(isinstance(error, Quarantined) for error in errors.values()) else ""
    result = LockUnavailable(name, f"{reason}: {told}{hint}" if told else reason, errors)
    result.__cause__ = next(iter(errors.values()), None)
    return result
