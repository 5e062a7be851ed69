"""Quarantine: a server that may have forgotten a grant makes no new one until every lease it may have given has ended.

The acquire script itself enforces it: a guard stands before it in the same script. See `docs/concepts/quarantine`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from .lease import millis
from .replies import NotServing, Quarantined, nonsense
from .requests import Fault, Run
from .scripts import Script, all_scripts, script

WITHOUT_END = 1e12  # ms: a quarantine until enough replicas follow


class Guard(NamedTuple):
    """What is put before an acquire script: ``marker`` is its key on each server, ``args`` its arguments."""

    prefix: str
    marker: bytes
    args: tuple[bytes, ...]

    def over(self, run: Run, prefix: str = "") -> Run:
        """``run``, guarded."""
        args = self.args[:1] if prefix else self.args
        combined = _combined(prefix or self.prefix, run.script, len(args))
        return Run(combined, (*run.keys, self.marker), (*run.args, *args), run.node, run.undoing)

    def scripts(self) -> list[Script]:
        """Every acquire script with the guard before it."""
        bodies = [each for each in all_scripts() if each.name.endswith("_acquire")]
        return [_combined(self.prefix, body, len(self.args)) for body in bodies]

    def touch(self, node: int = 0) -> Run:
        """Do nothing but start the clock of a quarantine that is due."""
        return self.over(Run(script("touch"), (), (), node))


@cache
def _combined(prefix: str, body: Script, extra: int) -> Script:
    return Script.made(f"{prefix}+{body.name}", script(prefix).source + body.source, body.keys + 1, body.args + extra)


def quarantine(key_prefix: str, max_ttl: float) -> Guard:
    """The guard of servers that stand alone."""
    return Guard("guard", f"{key_prefix}:marker".encode(), (millis(max_ttl),))


@cache
def replica_quarantine(key_prefix: str, max_ttl: float, lag: int, waits: int, rule: str) -> Guard:
    """The guard of a primary with replicas: ``rule`` says how many must follow, ``waits`` how many are waited for."""
    args = (millis(max_ttl), b"%d" % lag, b"%d" % waits, rule.encode())
    return Guard("guard_replicas", f"{key_prefix}:marker".encode(), args)


def served(reply: Any) -> Any:
    """The reply of a guarded script; a `Fault` where the guard did not let it through."""
    if not isinstance(reply, list) or reply[:1] in ([0], [1]):
        return reply
    try:
        error = (Quarantined if reply[0] == 2 else NotServing)(_SAYS[reply[0]](reply))
        ends = reply[0] == 2 and reply[1] < WITHOUT_END
    except (TypeError, LookupError) as strange:
        return nonsense(reply, strange)
    return Fault(error, passing=reply[0] in (2, 4), left=reply[1] / 1000 if ends else 0.0)


_SAYS = {
    2: lambda reply: (
        f"in quarantine for another {reply[1] / 1000:.1f} s, since it may have forgotten a lock that is held"
        if reply[1] < WITHOUT_END
        else "in quarantine until enough replicas follow it"
    ),
    3: lambda reply: f"its clients use max_ttl={reply[1] / 1000:g} s: it must be the same for all of them",
    4: lambda reply: f"{reply[1]} of the {reply[3]} replicas that must confirm keep up with it",
    5: lambda reply: f"{reply[1]} replicas must confirm",
}
