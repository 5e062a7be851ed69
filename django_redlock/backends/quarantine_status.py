"""Adds the state of a server's quarantine to its row in ``health()``."""

from __future__ import annotations

from typing import Any

from ..core.algorithms.quarantine import ENDLESS_MS
from ..core.algorithms.retries import run_idempotent
from ..core.flow.replies import parse_reply
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script


def quarantine_status(row: dict[str, Any], marker: bytes, max_ttl: float, node: int = 0) -> Flow[dict[str, Any]]:
    """Return the health ``row`` of a server with two more entries. The row of a replica is returned unchanged.

    ``armed``: whether the server grants locks. ``quarantine``: the seconds until the server grants locks; ``None``
    while it waits for enough replicas to follow it. ``marker``: the key of the server's marker. ``max_ttl``: the
    backend's value in seconds; a problem is added if other clients of the server use another value.
    """
    if row.get("role") != "master":
        return row  # the server is unavailable or a replica, which grants no locks
    reply = yield from run_idempotent(EvalScript(script("quarantine_status"), (marker,), (), node))
    if isinstance(reply, Fault):
        return {**row, "ok": False, "problems": [*row["problems"], _UNREADABLE % {"error": reply.error}]}
    named, left, agreed = parse_reply("", _three, reply)
    problems, warnings = list(row["problems"]), list(row["warnings"])
    if not named:
        warnings.append(_FROM_THE_FIRST % {"seconds": f"{max_ttl:g}"})
    elif left:
        msgid = _UNTIL_REPLICAS if left > ENDLESS_MS else _FOR_ANOTHER
        warnings.append(msgid % {"seconds": f"{left / 1000:.1f}"})
    if named and agreed != round(max_ttl * 1000):
        problems.append(_OTHER_MAX_TTL % {"theirs": f"{agreed / 1000:g}", "ours": f"{max_ttl:g}"})
    return {
        **row,
        "ok": not problems,
        "problems": problems,
        "warnings": warnings,
        "armed": bool(named) and not left,
        "quarantine": max_ttl if not named else None if left > ENDLESS_MS else left / 1000,
    }


def _three(reply: Any) -> tuple[int, int, int]:
    named, left, agreed = map(int, reply)
    return named, left, agreed


_UNREADABLE = "its marker can't be read: %(error)s"
_WHY = "It may have forgotten a lock that is held. Only if it is new: redlock_check --arm"
_FROM_THE_FIRST = f"wait, nothing to do: grants no new locks for %(seconds)s s from the first request on. {_WHY}"
_UNTIL_REPLICAS = f"start its replicas: grants no new locks until enough of them follow it. {_WHY}"
_FOR_ANOTHER = f"wait, nothing to do: grants no new locks for another %(seconds)s s. {_WHY}"
_OTHER_MAX_TTL = "its clients use max_ttl=%(theirs)s s, this client %(ours)s s: all must use the same value"
