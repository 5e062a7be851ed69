"""A live lock, as inspection shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any, NamedTuple

from .keys import is_stripe
from .owner import Owner
from .values import Claim, Lease, waited_before

# A task's record, as task_submit.lua writes it: state, run token, sending, end, next sending, its end, owner.
_TASK = re.compile(rb"([a-z]{1,16}) (\S+) \S+ \d{1,16} \S+ \d+ (.*)", re.DOTALL)

# A share, as shared_acquire.lua and rw_acquire.lua write it: kind, end in ms, access (rwlock only), holder.
_SHARE = re.compile(rb"([a-z]{1,16})@\d{1,16} (?:([rw]) )?.*", re.DOTALL)
_ACCESS = {"r": "read", "w": "write"}


class _Holder(NamedTuple):
    """One of the holders in a lock's value."""

    owner: Owner
    token: bytes


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A live lock. Times are seconds.

    ``remaining``: lease left, ``None`` for a lock without an end. ``waiters``: number of waiters, whose owners are in
    ``queue`` where it was asked for. ``nodes``: labels of the nodes that have granted the lock. ``digest`` identifies
    the holding without its token: pass it to ``force_release`` to release only this holding. ``token_prefix``: the
    beginning of the token, enough to find it in a log and too short to use. ``holders``: all owners of a lock that
    several may hold; ``owner`` is the first of them. ``digests``: one for each holder of a shared lock.
    """

    name: str
    kind: str
    owner: Owner
    remaining: float | None
    waiters: int = 0
    nodes: tuple[str, ...] = ()
    digest: str = ""
    queue: tuple[Owner, ...] = field(default=(), repr=False)
    token_prefix: str = ""
    holders: tuple[Owner, ...] = field(default=(), repr=False)
    digests: tuple[str, ...] = field(default=(), repr=False)

    @property
    def ttl(self) -> float | None:
        """The length of the lease; ``None`` if unknown. ``ttl - remaining``: time since the last renewal or the grant.

        It is the ttl of the acquire. A longer one given to ``extend()`` shows only while more than that remains.
        """
        return max(self.owner.ttl, self.remaining) if self.owner.ttl and self.remaining is not None else None

    @property
    def since(self) -> float | None:
        """Unix time, by the holder's clock, of the attempt that was granted; ``None`` if unknown.

        An attempt may have waited for up to five seconds in the store before it was granted.
        """
        return self.owner.since or None

    def matches(self, lease: Lease) -> bool:
        """Whether ``lease`` is the holding that was seen, or one of several."""
        if lease.new_claim is not None:  # the store may have the owner of either holder
            return self.token_prefix == visible_token_prefix(lease.claim.token)
        return claim_digest(lease.claim) in (self.digest, *self.digests)


def claim_digest(claim: Claim) -> str:
    """SHA-1 of the claim's value, which identifies a holding without its token. The scripts compute the same."""
    return _sha1(claim.token + b" " + claim.owner)


def _sha1(value: bytes) -> str:
    return sha1(value, usedforsecurity=False).hexdigest()


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Token and owner of a mutex's value. A value without a space is another client's token, and stays secret."""
    token, _, owner = value.partition(b" ")
    return token, owner


def visible_token_prefix(token: bytes) -> str:
    """A quarter of the token, at most eight characters, so that the token stays secret."""
    return token[: min(8, len(token) // 4)].decode(errors="replace")


def owner_of(token: bytes, text: bytes) -> Owner:
    """The owner in a lock's value, with the time that the holder had waited added to ``since``."""
    owner = Owner.parse(text)
    waited = waited_before(token) if owner.since else 0.0
    return replace(owner, since=owner.since + waited) if waited else owner


def mutex_kind(name: str, owner: Owner) -> str:
    """``"multilock"``, ``"striped"`` or ``"mutex"``: all three are kept as mutexes and exclude one another."""
    return "multilock" if "multilock" in owner.extra else "striped" if is_stripe(name) else "mutex"


def rwlock_owner(owner: Owner, access: str) -> Owner:
    """The owner of a share of a rwlock, with ``mode`` added to its fields."""
    return replace(owner, extra={"mode": _ACCESS.get(access, access), **owner.extra})


def _read_string(value: bytes) -> tuple[str, list[_Holder]]:
    token, text = split_value(value)
    return "mutex", [_Holder(owner_of(token, text), token)]


def _read_hash(value: Sequence[bytes]) -> tuple[str, list[_Holder]]:
    fields, records = value[::2], value[1::2]
    tasks = [found for record in records if (found := _TASK.fullmatch(record))]
    if tasks:
        return "task", sorted(map(_read_task, tasks), key=_running_first)
    holders = [_Holder(owner_of(token, text), token) for token, text in map(split_value, fields)]
    shares = [found for record in records if (found := _SHARE.fullmatch(record))]
    kind = shares[0][1].decode() if shares else ""
    if kind == "rwlock":
        holders = [
            each._replace(owner=rwlock_owner(each.owner, share[2].decode()))
            for each, share in zip(holders, shares, strict=False)
        ]
    return kind, holders


def _running_first(holder: _Holder) -> Any:
    return holder.owner.extra["state"] != "running", holder.owner.since


def _read_task(found: re.Match[bytes]) -> _Holder:
    state, token, text = found.groups()
    owner = owner_of(token, text)
    if state != b"running":
        owner = replace(owner, ttl=0.0)  # the owner names the lease of the body that ran
    return _Holder(replace(owner, extra={"state": state.decode(), **owner.extra}), token)


def _read_unknown(_value: bytes) -> tuple[str, list[_Holder]]:
    return "", []


_READERS: dict[bytes, Callable[[Any], tuple[str, list[_Holder]]]] = {b"string": _read_string, b"hash": _read_hash}


def read_lock_info(name: str, reply: Sequence[Any], node: str = "") -> LockInfo:
    """Parse the reply of ``describe.lua``. ``node``: label of the node that has replied."""
    nodes = (node,) if node else ()
    if len(reply) == 2:
        value, left = reply
        return _mutex_info(name, value, left, nodes)
    data_type, value, left, waiters, digest, *more = reply
    token = split_value(value)[0] if data_type == b"string" else b""
    kind, holders = _READERS.get(data_type, _read_unknown)(value)
    owners = tuple(each.owner for each in holders)
    if kind == "mutex":
        kind = mutex_kind(name, owners[0])
    return LockInfo(
        name=name,
        kind=kind or data_type.decode(),
        owner=owners[0] if owners else Owner(),
        remaining=_seconds(left),
        waiters=waiters,
        nodes=nodes,
        digest=digest.decode(),
        queue=tuple(Owner.parse(split_value(entry)[1]) for entry in more[0]) if more else (),
        token_prefix=visible_token_prefix(token),
        holders=owners,
        digests=tuple(map(_sha1, value[::2])) if data_type == b"hash" and kind != "task" else (),
    )


def _mutex_info(name: str, value: bytes, left: int, nodes: tuple[str, ...]) -> LockInfo:
    token, text = split_value(value)
    owner = owner_of(token, text)
    return LockInfo(
        name=name,
        kind=mutex_kind(name, owner),
        owner=owner,
        remaining=_seconds(left),
        nodes=nodes,
        digest=_sha1(value),
        token_prefix=visible_token_prefix(token),
        holders=(owner,),
    )


def _seconds(left: int) -> float | None:
    return None if left == -1 else max(0, left) / 1000
