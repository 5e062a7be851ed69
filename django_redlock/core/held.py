"""A live lock as an onlooker sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any

from .keys import is_stripe
from .lease import Claim, Lease
from .owner import Owner

# A task's record: state, run token, sending, end in ms, next sending, its end in ms, owner (as in task_submit.lua).
_TASK = re.compile(rb"([a-z]+) \S+ \S+ \d+ \S+ \d+ (.*)", re.DOTALL)

# A share: kind, end in ms, of a rwlock the mode, holder (as in shared_acquire.lua and rw_acquire.lua).
_SHARE = re.compile(rb"([a-z]+)@\d+ (?:([rw]) )?.*", re.DOTALL)
_MODES = {"r": "read", "w": "write"}


@dataclass(frozen=True, slots=True)
class Held:
    """A live lock. ``ttl`` is the seconds of lease left (``None``: it has no end); ``waiters`` how many queue for it.

    ``nodes`` names the nodes on which it is held. ``digest`` identifies this holding without giving away its token:
    hand it to ``force_release`` to release the lock only if it has not changed hands since. ``queue`` lists the
    waiters. ``token_prefix`` is enough of the token to find it in a log, and too little to use it. Where several may
    hold it, ``holders`` has them all, and ``owner`` is the first of them.
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
    holders: tuple[Owner, ...] = field(default=(), repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)  # one for each of the holders

    def is_of(self, lease: Lease) -> bool:
        """Whether this is that holding, or it is one of them."""
        if lease.own is not None:  # of which owner the store has heard last is uncertain
            return self.token_prefix == prefix_of(lease.claim.token)
        return digest(lease.claim) in (self.digest, *self.digests)


def digest(claim: Claim) -> str:
    """What identifies a holding to others without giving its token away: SHA-1 of its value, as the scripts reckon."""
    return _sha1(claim.token + b" " + claim.owner)


def _sha1(value: bytes) -> str:
    return sha1(value, usedforsecurity=False).hexdigest()


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Token and owner in a mutex's value. A value without a space is another client's token, and stays secret."""
    token, _, owner = value.partition(b" ")
    return token, owner


def prefix_of(token: bytes) -> str:
    """A quarter of the token, eight characters at most: it stays a secret."""
    return token[: min(8, len(token) // 4)].decode(errors="replace")


def kind_of_mutex(name: str, owner: Owner) -> str:
    """What a mutex is a part of: any of its kind excludes the others, since it is the same key."""
    return "multilock" if "multilock" in owner.extra else "striped" if is_stripe(name) else "mutex"


def sharing(owner: Owner, mode: str) -> Owner:
    """The owner of one side of a rwlock: it says which."""
    return replace(owner, extra={"mode": _MODES.get(mode, mode), **owner.extra})


def _mutex(value: bytes) -> tuple[str, tuple[Owner, ...]]:
    return "mutex", (Owner.parse(split_value(value)[1]),)


def _fields(value: Sequence[bytes]) -> tuple[str, tuple[Owner, ...]]:
    names, records = value[::2], value[1::2]
    tasks = [found for record in records if (found := _TASK.fullmatch(record))]
    if tasks:
        owners = ((Owner.parse(task[2]), task[1].decode()) for task in tasks)
        holders = [replace(owner, extra={"state": state, **owner.extra}) for owner, state in owners]
        return "task", tuple(sorted(holders, key=lambda owner: (owner.extra["state"] != "running", owner.since)))
    shares = [found for record in records if (found := _SHARE.fullmatch(record))]
    kind = shares[0][1].decode() if shares else ""
    known = tuple(Owner.parse(split_value(name)[1]) for name in names)
    if kind == "rwlock":
        known = tuple(sharing(owner, share[2].decode()) for owner, share in zip(known, shares, strict=False))
    return kind, known


def _unknown(_value: bytes) -> tuple[str, tuple[Owner, ...]]:
    return "", ()


_READERS: dict[bytes, Callable[[Any], tuple[str, tuple[Owner, ...]]]] = {
    b"string": _mutex,
    b"hash": _fields,
}


def read_held(name: str, reply: Sequence[Any], node: str = "") -> Held:
    """The reply of ``describe.lua``."""
    kind, value, left, waiters, digest = reply[:5]
    token = split_value(value)[0] if kind == b"string" else b""
    what, holders = _READERS.get(kind, _unknown)(value)
    queue = tuple(Owner.parse(split_value(entry)[1]) for entry in reply[5]) if len(reply) > 5 else ()
    if what == "mutex":
        what = kind_of_mutex(name, holders[0])
    return Held(
        name=name,
        kind=what or kind.decode(),
        owner=holders[0] if holders else Owner(),
        ttl=None if left == -1 else max(0, left) / 1000,
        waiters=waiters,
        nodes=(node,) if node else (),
        digest=digest.decode(),
        queue=queue,
        token_prefix=prefix_of(token),
        holders=holders,
        digests=tuple(map(_sha1, value[::2])) if kind == b"hash" and what != "task" else (),
    )
