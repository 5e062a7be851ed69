"""A live lock as an onlooker sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

from .lease import Claim
from .owner import Owner

_KINDS = {b"string": "mutex", b"hash": "rlock", b"zset": "semaphore"}


@dataclass(frozen=True, slots=True)
class Held:
    """A live lock. ``ttl`` is the seconds of lease left (``None``: it has no end); ``waiters`` how many queue for it.

    ``nodes`` names the nodes on which it is held. ``digest`` identifies this holding without giving away its token:
    hand it to ``force_release`` to release the lock only if it has not changed hands since. ``queue`` lists the
    waiters. ``token_prefix`` is enough of the token to find it in a log, and too little to use it.
    """

    name: str
    kind: str
    owner: Owner
    ttl: float | None
    waiters: int = 0
    nodes: tuple[str, ...] = ()
    digest: str = ""
    queue: tuple[Owner, ...] = field(default=(), repr=False)
    token_prefix: str = ""

    def is_of(self, claim: Claim) -> bool:
        """Whether this is the holding that ``claim`` got."""
        return self.digest == digest(claim)


def digest(claim: Claim) -> str:
    """What identifies a holding to others without giving its token away: SHA-1 of its value, as the scripts reckon."""
    return sha1(claim.token + b" " + claim.owner, usedforsecurity=False).hexdigest()


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Token and owner in a mutex's value. A value without a space is another client's token, and stays secret."""
    token, _, owner = value.partition(b" ")
    return token, owner


def prefix_of(token: bytes) -> str:
    """A quarter of the token, eight characters at most: it stays a secret."""
    return token[: min(8, len(token) // 4)].decode(errors="replace")


def read_held(name: str, reply: Sequence[Any], node: str = "") -> Held:
    """The reply of ``describe.lua``."""
    kind, value, left, waiters, digest = reply[:5]
    token, owner = split_value(value) if kind == b"string" else (b"", b"{}")
    queue = tuple(Owner.parse(split_value(entry)[1]) for entry in reply[5]) if len(reply) > 5 else ()
    return Held(
        name=name,
        kind=_KINDS.get(kind, kind.decode()),
        owner=Owner.parse(owner),
        ttl=None if left == -1 else max(0, left) / 1000,
        waiters=waiters,
        nodes=(node,) if node else (),
        digest=digest.decode(),
        queue=queue,
        token_prefix=prefix_of(token),
    )
