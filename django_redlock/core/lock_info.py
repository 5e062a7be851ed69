"""A live lock as an onlooker sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any, NamedTuple, Self

from .keys import is_stripe
from .owner import Owner
from .values import Claim, Lease

# A task's record: state, run token, sending, end in ms, next sending, its end in ms, owner (as in task_submit.lua).
_TASK = re.compile(rb"([a-z]{1,16}) (\S+) \S+ (\d{1,16}) \S+ \d+ (.*)", re.DOTALL)

# A share: kind, end in ms, of a rwlock the mode, holder (as in shared_acquire.lua and rw_acquire.lua).
_SHARE = re.compile(rb"([a-z]{1,16})@(\d{1,16}) (?:([rw]) )?.*", re.DOTALL)
_TENURE = re.compile(rb"(\d{1,9}) (\d{1,16}) (\d{1,16})")  # as `Lease.renewal_record` writes it
_ACCESS = {"r": "read", "w": "write"}


class HoldTime(NamedTuple):
    """How long a holder has had a lock. ``None`` where the store does not know.

    ``held`` and ``renewed``: the seconds since it was granted, and since its lease was, or was last renewed; by the
    store's clock. ``renewals``: how often. ``ttl``: the lease that it asked for last, in seconds.
    """

    held: float | None = None
    renewals: int | None = None
    renewed: float | None = None
    ttl: float = 0.0

    @classmethod
    def from_remaining(cls, left: float | None, ttl: float, renewals: int = 0, held: float = 0.0) -> Self:
        """From what is left of a lease of ``ttl`` seconds, and how long it had been held when that lease began."""
        if left is None or not ttl:
            return cls()
        passed = max(0.0, ttl - left)
        return cls(held + passed, renewals, passed, ttl)


class _Holder(NamedTuple):
    """One of those in a lock's value. ``ends``: when, in ms of the server's clock, if not together with the key."""

    owner: Owner
    token: bytes
    ends: int | None = None


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A live lock. ``ttl`` is the seconds of lease left (``None``: it has no end); ``waiters`` how many queue for it.

    ``nodes`` names the nodes on which it is held. ``digest`` identifies this holding without giving away its token:
    hand it to ``force_release`` to release the lock only if it has not changed hands since. ``queue`` lists the
    waiters. ``token_prefix`` is enough of the token to find it in a log, and too little to use it. Where several may
    hold it, ``holders`` has them all, and ``owner`` is the first of them; ``tenures`` tells of each how long.
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
    hold_times: tuple[HoldTime, ...] = field(default=(), repr=False)  # likewise

    @property
    def hold_time(self) -> HoldTime:
        """How long the first of the holders has had it."""
        return self.hold_times[0] if self.hold_times else HoldTime()

    def matches(self, lease: Lease) -> bool:
        """Whether this is that holding, or it is one of them."""
        if lease.new_claim is not None:  # of which owner the store has heard last is uncertain
            return self.token_prefix == visible_token_prefix(lease.claim.token)
        return claim_digest(lease.claim) in (self.digest, *self.digests)


def claim_digest(claim: Claim) -> str:
    """What identifies a holding to others without giving its token away: SHA-1 of its value, as the scripts reckon."""
    return _sha1(claim.token + b" " + claim.owner)


def _sha1(value: bytes) -> str:
    return sha1(value, usedforsecurity=False).hexdigest()


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Token and owner in a mutex's value. A value without a space is another client's token, and stays secret."""
    token, _, owner = value.partition(b" ")
    return token, owner


def visible_token_prefix(token: bytes) -> str:
    """A quarter of the token, eight characters at most: it stays a secret."""
    return token[: min(8, len(token) // 4)].decode(errors="replace")


def mutex_kind(name: str, owner: Owner) -> str:
    """What a mutex is a part of: any of its kind excludes the others, since it is the same key."""
    return "multilock" if "multilock" in owner.extra else "striped" if is_stripe(name) else "mutex"


def rwlock_owner(owner: Owner, mode: str) -> Owner:
    """The owner of one side of a rwlock: it says which."""
    return replace(owner, extra={"mode": _ACCESS.get(mode, mode), **owner.extra})


def _mutex(value: bytes) -> tuple[str, list[_Holder]]:
    token, owner = split_value(value)
    return "mutex", [_Holder(Owner.parse(owner), token)]


def _fields(value: Sequence[bytes]) -> tuple[str, list[_Holder]]:
    names, records = value[::2], value[1::2]
    tasks = [found for record in records if (found := _TASK.fullmatch(record))]
    if tasks:
        return "task", sorted(map(_task, tasks), key=_running_first)
    shares = [found for record in records if (found := _SHARE.fullmatch(record))]
    kind = shares[0][1].decode() if shares else ""
    known = [split_value(name) for name in names]
    ends = [int(share[2]) for share in shares] if len(shares) == len(known) else [None] * len(known)
    holders = [_Holder(Owner.parse(owner), token, end) for (token, owner), end in zip(known, ends, strict=True)]
    if kind == "rwlock":
        modes = [share[3].decode() for share in shares]
        holders = [
            each._replace(owner=rwlock_owner(each.owner, mode)) for each, mode in zip(holders, modes, strict=False)
        ]
    return kind, holders


def _running_first(holder: _Holder) -> Any:
    return holder.owner.extra["state"] != "running", holder.owner.since


def _task(found: re.Match[bytes]) -> _Holder:
    state, token, due, text = found.groups()
    owner = Owner.parse(text)
    if state != b"running":
        owner = replace(owner, ttl=0.0)  # what it says is the lease of the body that ran
    return _Holder(replace(owner, extra={"state": state.decode(), **owner.extra}), token, int(due))


def _unknown(_value: bytes) -> tuple[str, list[_Holder]]:
    return "", []


_READERS: dict[bytes, Callable[[Any], tuple[str, list[_Holder]]]] = {
    b"string": _mutex,
    b"hash": _fields,
}


def read_lock_info(name: str, reply: Sequence[Any], node: str = "") -> LockInfo:
    """The reply of ``describe.lua``."""
    nodes = (node,) if node else ()
    if len(reply) == 2:
        value, left = reply
        return _read_mutex(name, value, left, nodes)
    kind, value, left, waiters, digest, now, renewed, *more = reply
    ttl = _seconds(left)
    token = split_value(value)[0] if kind == b"string" else b""
    what, holders = _READERS.get(kind, _unknown)(value)
    owners = tuple(each.owner for each in holders)
    told = dict(zip(renewed[::2], renewed[1::2], strict=True))
    queue = tuple(Owner.parse(split_value(entry)[1]) for entry in more[0]) if more else ()
    if what == "mutex":
        what = mutex_kind(name, owners[0])
    return LockInfo(
        name=name,
        kind=what or kind.decode(),
        owner=owners[0] if owners else Owner(),
        ttl=ttl,
        waiters=waiters,
        nodes=nodes,
        digest=digest.decode(),
        queue=queue,
        token_prefix=visible_token_prefix(token),
        holders=owners,
        digests=tuple(map(_sha1, value[::2])) if kind == b"hash" and what != "task" else (),
        hold_times=tuple(
            _hold_time(
                told.get(each.token, b""), ttl if each.ends is None else (each.ends - now) / 1000, each.owner.ttl
            )
            for each in holders
        ),
    )


def _read_mutex(name: str, value: bytes, left: int, nodes: tuple[str, ...]) -> LockInfo:
    token, text = split_value(value)
    owner, ttl = Owner.parse(text), _seconds(left)
    return LockInfo(
        name=name,
        kind=mutex_kind(name, owner),
        owner=owner,
        ttl=ttl,
        nodes=nodes,
        digest=_sha1(value),
        token_prefix=visible_token_prefix(token),
        holders=(owner,),
        hold_times=(HoldTime.from_remaining(ttl, owner.ttl),),
    )


def _seconds(left: int) -> float | None:
    return None if left == -1 else max(0, left) / 1000


def _hold_time(told: bytes, left: float | None, ttl: float) -> HoldTime:
    """``told``: what it said when it last renewed; ``ttl``: the lease that it began with."""
    found = _TENURE.fullmatch(told)
    if not found:
        return HoldTime.from_remaining(left, ttl)
    renewals, held, last = map(int, found.groups())
    return HoldTime.from_remaining(left, last / 1000, renewals, held / 1000)
