"""What health() tells of a server's quarantine."""

from __future__ import annotations

from typing import Any

from ..core.flows.single import ask
from ..core.guard import WITHOUT_END
from ..core.replies import understood
from ..core.requests import Fault, Flow, Run
from ..core.scripts import script


def standing(row: dict[str, Any], marker: bytes, max_ttl: float, node: int = 0) -> Flow[dict[str, Any]]:
    """The row with ``armed`` (in service) and ``quarantine``: seconds left, ``None`` until enough replicas follow."""
    if row.get("role") != "master":
        return row  # not reached, or a replica: whatever its marker says
    reply = yield from ask(Run(script("standing"), (marker,), (), node))
    if isinstance(reply, Fault):
        return {**row, "ok": False, "problems": [*row["problems"], f"its marker can't be read: {reply.error}"]}
    named, left, agreed = understood("", _three, reply)
    problems, warnings = list(row["problems"]), list(row["warnings"])
    if not named:
        warnings.append(f"makes no new grants for {max_ttl:g} s from the first request on: {_NEW}")
    elif left:
        until = "until enough replicas follow it" if left > WITHOUT_END else f"for another {left / 1000:.1f} s"
        warnings.append(f"makes no new grants {until}: {_NEW}")
    if named and agreed != round(max_ttl * 1000):
        problems.append(f"its clients use max_ttl={agreed / 1000:g} s, this one {max_ttl:g} s: it must be the same")
    return {
        **row,
        "ok": not problems,
        "problems": problems,
        "warnings": warnings,
        "armed": bool(named) and not left,
        "quarantine": max_ttl if not named else None if left > WITHOUT_END else left / 1000,
    }


def _three(reply: Any) -> tuple[int, int, int]:
    named, left, agreed = map(int, reply)
    return named, left, agreed


_NEW = "it may have forgotten a lock that is held (if it is new: redlock_check --arm)"
