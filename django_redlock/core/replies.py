"""How the scripts' replies and the stores' faults are to be read: the same under every rule."""

from __future__ import annotations

import math
from typing import Any

from ..errors import LockError, LockUnavailable
from . import lease as _lease
from .lease import Claim, Lease, Refusal, valid_until
from .requests import Fault


def server_time(reply: Any) -> int:
    """The node's clock in µs when it answered an acquire."""
    time: int = reply if type(reply) is int else reply[2]
    return time


def outcome_of(claim: Claim, reply: Any, start: float) -> Lease | Refusal:
    """What a node's reply to an acquire means, if it answered at ``start`` or later.

    The server's time in µs, or ``{1, fencing token, time}``: granted. ``{0, lease left in ms, time, owner}``: taken; a
    lease without an end counts as infinite.
    """
    if type(reply) is int or reply[0] == 1:
        fencing_token = reply if type(reply) is int else reply[1]
        return Lease(claim, claim.ttl, valid_until(start, claim.ttl), fencing_token, start, _lease.generation)
    left = reply[1]
    remaining = math.inf if left == -1 else max(0, left) / 1000
    return Refusal(remaining, reply[3].decode(errors="replace"), start, reply[2])


def trouble(name: str, fault: Fault) -> LockError:
    """The error for a request that got no answer, with its cause chained."""
    error = fault.error
    if "WRONGTYPE" in str(error):
        wrong = LockError(name, "its key holds something that no lock of this kind wrote (WRONGTYPE)")
        wrong.__cause__ = error
        return wrong
    reason = f"the store can't be asked: {error}" + (f" ({fault.where})" if fault.where else "")
    unavailable = LockUnavailable(name, reason, {fault.where: error})
    unavailable.__cause__ = error
    return unavailable
