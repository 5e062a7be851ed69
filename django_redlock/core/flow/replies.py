"""Parses replies of the Lua scripts, and converts faults into exceptions, for all algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...errors import LockError, LockUnavailable
from ..owner import MAX_OWNER_BYTES
from ..values import Claim, Lease, Refusal
from .requests import Fault

T = TypeVar("T")
NEVER = -3  # in place of the ms left of a lease: the claim is never granted. PTTL itself returns -1 and -2
ENDLESS_MS = 1e12  # milliseconds; a quarantine of this length lasts until enough replicas follow
ARM_HINT = (
    "wait, nothing to do: it ends by itself. Only if the servers are new and no lock is held on them: "
    "manage.py redlock_check --arm, or backend.arm()"
)
ACL_HINT = "the documentation (A Redis user for locks) lists the permissions; INFO is not needed with quarantine=False"


class NotServing(Exception):
    """The server replies, but grants no locks at the moment."""


class Quarantined(NotServing):
    """The server is in quarantine: it grants no locks, because it may have lost a lock that is held."""


class UnreadableReply(Exception):
    """A reply that no script of this package returns. The server may be a proxy, or may not be Redis."""

    def __init__(self, reply: Any) -> None:
        super().__init__(reply)

    def __str__(self) -> str:
        return f"it is not Redis, or a proxy replies in its place: {self.args[0]!r:.100}"


def parse_reply(name: str, read: Callable[..., T], reply: Any, *more: Any) -> T:
    """Return ``read(reply, *more)``. ``name``: the name of the lock, for errors.

    Raises ``LockUnavailable`` if ``read`` fails, because then the reply is not from a script of this package.
    """
    try:
        return read(reply, *more)
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise fault_error(name, unreadable(reply, error)) from error


def unreadable(reply: Any, error: Exception | None = None) -> Fault:
    """Return the `Fault` for ``reply``, which can't be parsed. ``error``: the parser's exception, if any."""
    strange = UnreadableReply(reply)
    strange.__cause__ = error
    return Fault(strange, unconfirmed=True)


def refusal_reason(error: LockError) -> str:
    """Return the ``reason`` of the event "refused": ``quarantine``, ``unavailable`` or ``misused``."""
    if not isinstance(error, LockUnavailable):
        return "misused"
    return "quarantine" if any(isinstance(each, Quarantined) for each in error.errors.values()) else "unavailable"


def is_grant(reply: Any) -> bool:
    """Return whether a reply to an acquire is a grant."""
    return reply > 1 if type(reply) is int else reply is True or (type(reply) is list and reply[:1] == [1])


def is_confirmed(reply: Any) -> bool:
    """Return whether ``reply`` confirms an extension, or grants the lock to a restore request or a hand-over."""
    return reply == 1 or is_grant(reply)


def read_outcome(claim: Claim, reply: Any, start: float) -> Lease | Refusal:
    """Parse a node's reply to the acquire script. Returns a lease or a refusal.

    ``start``: monotonic seconds at which the request was sent. The lease begins at this time, before the grant.

    A grant is the server's time in µs, ``{1, fencing token, time}``, or ``True`` for `SetIfAbsent`. A refusal is ``{0,
    ms left of the lease, time, owner of the holder}``. The ms are -1 for a lease without an end, and `NEVER` for a
    claim that is never granted. With several locks, the list may have one more number: the index, from 1, of the lock
    that was granted or refused. Raises ``LockUnavailable`` for any other reply, also for 1, the reply of some servers
    and proxies for success.
    """
    if reply is True or (type(reply) is int and reply > 1):
        return Lease.granted(claim, start)
    return parse_reply(claim.name, _outcome, reply, claim, start)


def _outcome(reply: list[Any], claim: Claim, start: float) -> Lease | Refusal:
    granted, number, time, *_ = reply
    if granted not in (0, 1) or type(number) is not int or type(time) is not int:
        raise ValueError(reply)
    if granted == 1:
        return Lease.granted(claim.narrowed_to(reply[3]) if len(reply) > 3 else claim, start, number)
    remaining = math.inf if number == -1 else max(0, number) / 1000
    holder = reply[3][:MAX_OWNER_BYTES].decode(errors="replace")
    index, answer = reply[4] if len(reply) > 4 else 0, reply[5] if len(reply) > 5 else b""
    return Refusal(remaining, holder, start, index, number == NEVER, answer)


# ── quarantine ───────────────────────────────────────────────────────────────────────────────


def is_from_quarantine(reply: Any) -> bool:
    """Return whether the quarantine script has refused, so that the acquire script after it did not run."""
    return isinstance(reply, list) and reply[:1] not in ([0], [1])


def unwrap_reply(reply: Any) -> Any:
    """Return the acquire script's part of ``reply``, or a `Fault` if the quarantine script has refused."""
    if not is_from_quarantine(reply):
        return reply
    try:
        error = (Quarantined if reply[0] == 2 else NotServing)(_MESSAGES[reply[0]](reply))
        ends = reply[0] == 2 and reply[1] < ENDLESS_MS
    except (TypeError, LookupError) as strange:
        return unreadable(reply, strange)
    return Fault(error, transient=reply[0] in (2, 4), retry_after=reply[1] / 1000 if ends else 0.0)


def required_replicas(reply: Any) -> int | None:
    """Return the number of replicas that must confirm, if ``reply`` of a primary contains it; otherwise ``None``."""
    match reply:
        case [5, int(needed), *_] | [4, _, _, int(needed), *_]:
            return needed
    return None


_MESSAGES = {
    2: lambda reply: (
        f"in quarantine for another {reply[1] / 1000:.1f} s, since it may have forgotten a lock that is held"
        if reply[1] < ENDLESS_MS
        else "in quarantine until enough replicas follow it"
    ),
    3: lambda reply: f"its clients use max_ttl={reply[1] / 1000:g} s: all clients must use the same value",
    4: lambda reply: f"{reply[1]} of the {reply[3]} replicas that must confirm keep up with it",
    5: lambda reply: f"{reply[1]} replicas must confirm",
}


# ── errors ───────────────────────────────────────────────────────────────────────────────────


def fault_error(name: str, fault: Fault) -> LockError:
    """Return the exception to raise for a `Fault` of the lock ``name``. Its cause is the error of the `Fault`."""
    if isinstance(fault.error, LockUnavailable):
        fault.error.unconfirmed |= fault.unconfirmed
    if isinstance(fault.error, LockError):
        fault.error.name = fault.error.name or name
        return fault.error
    if error := misuse_error(fault):
        result = error(name, fault.error)
        result.__cause__ = fault.error
        return result
    unavailable = unavailable_error(name, "the store is unavailable", {fault.where: fault.error})
    unavailable.unconfirmed = fault.unconfirmed
    return unavailable


def misuse_error(fault: Fault) -> Callable[[str, Exception], LockError] | None:
    """Return the function that creates the exception for a misuse of the lock; ``None`` if ``fault`` is no misuse."""
    return next((make for word, make in _MISUSE.items() if word in str(fault.error)), None)


def _other_kind(name: str, error: Exception) -> LockError:
    text = str(error).partition(" script: ")[0]
    use = "another kind of lock, or another program, uses one of its keys"
    return LockError(name, f"{use} ({text:.200}): give this lock another name or KEY_PREFIX")


def upgrade_error(name: str) -> LockError:
    """Return the error for a reader that acquires ``write``: two such readers would wait for each other forever."""
    return LockError(name, "a reader can't acquire `write`: release `read` first, or acquire `write` first")


_MISUSE: Mapping[str, Callable[[str, Exception], LockError]] = {
    "WRONGTYPE": _other_kind,
    "UPGRADE": lambda name, _: upgrade_error(name),
}


def unavailable_error(name: str, reason: str, errors: Mapping[str, Exception]) -> LockUnavailable:
    """Return the error for a store that does not reply, or grants no locks at the moment.

    The message consists of ``reason``, ``errors``, and a hint for known causes.
    """
    details = "; ".join(f"{where}: {error}" if where else str(error) for where, error in errors.items())
    hint = next((f" ({hint})" for error in errors.values() if (hint := _hint(error))), "")
    result = LockUnavailable(name, f"{reason}: {details}{hint}" if details else reason, errors)
    result.__cause__ = next(iter(errors.values()), None)
    return result


def _hint(error: Exception) -> str:
    if isinstance(error, Quarantined):
        return ARM_HINT
    return ACL_HINT if any(words in str(error) for words in _DENIED) else ""


# In a script up to Redis 7.0, in a script since then, and outside of scripts.
_DENIED = "executing the script can't run this command", "ACL failure in script", "has no permissions to"
