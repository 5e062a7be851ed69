"""The quarantine of a server, for health()."""

from __future__ import annotations

from typing import Any

from ..core.algorithms.quarantine import ENDLESS_MS
from ..core.algorithms.single_node import run_idempotent
from ..core.flow.replies import parse_reply
from ..core.flow.requests import EvalScript, Fault, Flow
from ..core.flow.scripts import script


def quarantine_status(row: dict[str, Any], marker: bytes, max_ttl: float, node: int = 0) -> Flow[dict[str, Any]]:
    """Return the health ``row`` with ``armed`` and ``quarantine``. The row of a replica is returned unchanged.

    ``armed``: whether the server makes new grants. ``quarantine``: seconds until it does; ``None`` if the quarantine
    lasts until enough replicas follow. ``max_ttl``: seconds, as configured here; a problem is added if clients of the
    server use another value.
    """
    if row.get("role") != "master":
        return row  # the server is unavailable or a replica, which grants no locks
    reply = yield from run_idempotent(EvalScript(script("quarantine_status"), (marker,), (), node))
    if isinstance(reply, Fault):
        return {**row, "ok": False, "problems": [*row["problems"], f"its marker can't be read: {reply.error}"]}
    named, left, agreed = parse_reply("", _three, reply)
    problems, warnings = list(row["problems"]), list(row["warnings"])
    if not named:
        warnings.append(f"makes no new grants for {max_ttl:g} s from the first request on: {_NEW}")
    elif left:
        until = "until enough replicas follow it" if left > ENDLESS_MS else f"for another {left / 1000:.1f} s"
        warnings.append(f"makes no new grants {until}: {_NEW}")
    if named and agreed != round(max_ttl * 1000):
        problems.append(
            f"its clients use max_ttl={agreed / 1000:g} s, this client {max_ttl:g} s: all must use the same value"
        )
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


_NEW = "it may have forgotten a lock that is held (if it is new: redlock_check --arm)"
