"""Quarantine: a server that may have forgotten a grant makes no new one until every lease it may have given has ended.

The acquire script enforces it: the source of a quarantine script is put before it. See `docs/concepts/quarantine`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ..flow.replies import NotServing, Quarantined, unreadable
from ..flow.requests import EvalScript, Fault
from ..flow.scripts import Script, all_scripts, script
from ..values import millis

ENDLESS_MS = 1e12  # a quarantine that lasts until enough replicas follow


class Quarantine(NamedTuple):
    """The script put before acquire scripts. ``marker``: its key on each server; ``args``: its last arguments."""

    prefix: str
    marker: bytes
    args: tuple[bytes, ...]

    def wrap(self, run: EvalScript, prefix: str = "") -> EvalScript:
        """``run`` behind the quarantine script, or behind the script ``prefix``."""
        args = self.args[:1] if prefix else self.args
        combined = _combined(prefix or self.prefix, run.script, len(args))
        return EvalScript(combined, (*run.keys, self.marker), (*run.args, *args), run.node, run.compensation)

    def scripts(self) -> list[Script]:
        """Every acquire script behind the quarantine script."""
        bodies = [each for each in all_scripts() if each.name.endswith("_acquire")]
        return [_combined(self.prefix, body, len(self.args)) for body in bodies]

    def noop_request(self, node: int = 0) -> EvalScript:
        """Acquire nothing, but start a quarantine that is due."""
        return self.wrap(EvalScript(script("noop"), (), (), node))


@cache
def _combined(prefix: str, body: Script, extra: int) -> Script:
    return Script.made(f"{prefix}+{body.name}", script(prefix).source + body.source, body.keys + 1, body.args + extra)


def standalone_quarantine(key_prefix: str, max_ttl: float) -> Quarantine:
    """The quarantine of a server without replicas that count."""
    return Quarantine("quarantine", f"{key_prefix}:marker".encode(), (millis(max_ttl),))


@cache
def replica_quarantine(key_prefix: str, max_ttl: float, lag: int, waits: int, required: str) -> Quarantine:
    """The quarantine of a primary. ``required``: replicas that must follow; ``waits``: those that WAIT waits for."""
    args = (millis(max_ttl), b"%d" % lag, b"%d" % waits, required.encode())
    return Quarantine("quarantine_replicas", f"{key_prefix}:marker".encode(), args)


def unwrap_reply(reply: Any) -> Any:
    """The reply of a script behind a quarantine script; a `Fault` if the quarantine script refused."""
    if not isinstance(reply, list) or reply[:1] in ([0], [1]):
        return reply
    try:
        error = (Quarantined if reply[0] == 2 else NotServing)(_MESSAGES[reply[0]](reply))
        ends = reply[0] == 2 and reply[1] < ENDLESS_MS
    except (TypeError, LookupError) as strange:
        return unreadable(reply, strange)
    return Fault(error, transient=reply[0] in (2, 4), retry_after=reply[1] / 1000 if ends else 0.0)


def in_service(reply: Any) -> bool:
    """Whether a server that answers this to a `Quarantine.noop_request` makes new grants.

    A primary that wants another number of replicas to confirm (5) does: acquires learn the number from it.
    """
    return isinstance(reply, list) and reply[:1] in ([1], [5])


_MESSAGES = {
    2: lambda reply: (
        f"in quarantine for another {reply[1] / 1000:.1f} s, since it may have forgotten a lock that is held"
        if reply[1] < ENDLESS_MS
        else "in quarantine until enough replicas follow it"
    ),
    3: lambda reply: f"its clients use max_ttl={reply[1] / 1000:g} s: it must be the same for all of them",
    4: lambda reply: f"{reply[1]} of the {reply[3]} replicas that must confirm keep up with it",
    5: lambda reply: f"{reply[1]} replicas must confirm",
}
