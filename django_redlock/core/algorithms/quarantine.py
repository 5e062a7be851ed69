"""Quarantine: a server that may have lost its data grants no locks until all its earlier grants have ended.

The source of a quarantine script is prepended to each acquire script, so the server itself enforces the quarantine. See
`docs/concepts/quarantine`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..flow.requests import EvalScript
from ..flow.scripts import Script, all_scripts, script
from ..primitives.base import Primitive
from ..values import Claim, millis


class Quarantine(NamedTuple):
    """The quarantine script ``prefix`` of a store. It is prepended to each acquire script.

    ``marker``: the key on each server that identifies the server's data. ``args``: arguments that follow those of the
    acquire script.
    """

    prefix: str
    marker: bytes
    args: tuple[bytes, ...]

    def wrap(self, call: EvalScript, prefix: str = "") -> EvalScript:
        """Return ``call`` with the script ``prefix`` (default: quarantine) prepended."""
        args = self.args[:1] if prefix else self.args
        combined = _combined(prefix or self.prefix, call.script)
        return EvalScript(combined, (*call.keys, self.marker), (*call.args, *args), call.node, call.compensation)

    def restore_request(self, primitive: Primitive, claim: Claim, ttl: float) -> EvalScript:
        """Return the request that restores a lock on a server that is in quarantine and has lost the lock.

        The caller must send `noop_request` first, which starts a quarantine that is due. The caller must ignore a reply
        that arrives after the end of the old lease: by then the server may have granted the lock to another client, and
        have lost that grant, too.
        """
        return self.wrap(primitive.restore_request(claim, ttl), "quarantine_restore")

    def scripts(self) -> list[Script]:
        """Return every acquire script with the quarantine script prepended."""
        bodies = [each for each in all_scripts() if each.name.endswith("_acquire")]
        return [_combined(self.prefix, body) for body in bodies]

    def noop_request(self, node: int = 0) -> EvalScript:
        """Return a request that acquires nothing, but starts the server's quarantine if one is due."""
        return self.wrap(EvalScript(_NOOP, (), (), node))


_NOOP = Script.made("noop", b"return {1, 0, 0}\n")  # in service


@cache
def _combined(prefix: str, body: Script) -> Script:
    return Script.made(f"{prefix}+{body.name}", script(prefix).source + body.source)


def standalone_quarantine(key_prefix: str, max_ttl: float) -> Quarantine:
    """Return the `Quarantine` for servers that grant without their replicas. ``max_ttl``: seconds."""
    return Quarantine("quarantine", f"{key_prefix}:marker".encode(), (millis(max_ttl),))


@cache
def replica_quarantine(key_prefix: str, max_ttl: float, lag: int, waits: int, required: str) -> Quarantine:
    """Return the `Quarantine` for a primary whose replicas must confirm grants. Options as for `Replicated`.

    ``waits``: the number of replicas that the client waits for. If the number of replicas has changed, and ``required``
    (such as "majority") now means another number, the script refuses with that number.
    """
    args = (millis(max_ttl), b"%d" % lag, b"%d" % waits, required.encode())
    return Quarantine("quarantine_replicas", f"{key_prefix}:marker".encode(), args)
