"""Descriptions of live locks, parsed from the values in the store, for the admin, the commands and ``held()``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any, NamedTuple

from .keys import is_stripe
from .owner import Owner
from .values import Claim, Lease, waited_before

# A task record, see task_record.lua: state, run token, delivery id, end in ms, next delivery id, its end in ms, owner.
_TASK = re.compile(rb"([a-z]{1,16}) (\S+) \S+ \d{1,16} \S+ \d+ (.*)", re.DOTALL)

# A share, as shared_acquire.lua and rw_acquire.lua write it: kind, end in ms, access (rwlock only), holder.
_SHARE = re.compile(rb"([a-z]{1,16})@\d{1,16} (?:([rw]) )?.*", re.DOTALL)
_ACCESS = {"r": "read", "w": "write"}


DONE = b"done"  # in place of the token of a mutex that has been released, and is kept for its period or `min_hold`


class _Holder(NamedTuple):
    """One holder in the value of a lock."""

    owner: Owner
    token: bytes


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A live lock as the store shows it. Times are seconds.

    - ``remaining``: the time left of the lease; ``None`` if the key has no expiry.
    - ``waiters``: the number of waiters. ``queue``: the owners of the waiters, if the caller asked for the queue.
    - ``nodes``: labels of the nodes that have granted the lock.
    - ``digest``: identifies this acquisition without its token. Pass the digest to ``force_release``, so that no later
      acquisition is released.
    - ``token_prefix``: the beginning of the token, long enough to find in a log and too short to release the lock.
    - ``owner``: the first holder. ``holders``: all holders of a lock that can have several.
    - ``digests``: one digest for each holder of a shared lock, in the order of ``holders``. Pass one of them to
      ``force_release`` to release this holder only.
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
        """The ttl of the lease in seconds; ``None`` if unknown.

        ``ttl - remaining`` is the time since the last renewal or the grant. The store keeps only the ttl of
        ``acquire()``. After an ``extend()`` to another ttl, the value is the larger of the ttl of ``acquire()`` and
        `remaining`, and may differ from the ttl of the lease.
        """
        return max(self.owner.ttl, self.remaining) if self.owner.ttl and self.remaining is not None else None

    @property
    def since(self) -> float | None:
        """Unix time of the attempt that was granted, by the holder's clock; ``None`` if unknown.

        The grant may be up to five seconds later, because an attempt can wait that long in the store.
        """
        return self.owner.since or None

    def matches(self, lease: Lease) -> bool:
        """Return whether ``lease`` is the lease that this description shows, or one of the leases of a shared lock."""
        return claim_digest(lease.claim) in (self.digest, *self.digests)


def by_trouble(held: LockInfo) -> tuple[float, ...]:
    """Return a sort key: the lock with most waiters first, then by the longest wait, then by the longest hold."""
    forever = float("inf")
    return -held.waiters, min((owner.since or forever for owner in held.queue), default=0.0), held.since or forever


def claim_digest(claim: Claim) -> str:
    """Return the SHA-1 in hex of the value that ``claim`` has in the store: token, space, owner.

    The digest identifies an acquisition without showing the token. The Lua scripts compute the same digest.
    """
    return _sha1(claim.token + b" " + claim.owner)


def _sha1(value: bytes) -> str:
    return sha1(value, usedforsecurity=False).hexdigest()


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Split the value of a mutex in the store into token and owner, and return both.

    A value without a space was written by another client: all of the value counts as the token, and stays secret.
    """
    token, _, owner = value.partition(b" ")
    return token, owner


def visible_token_prefix(token: bytes) -> str:
    """Return the first quarter of the token, at most eight characters, so that the token stays secret."""
    return "" if token == DONE else token[: min(8, len(token) // 4)].decode(errors="replace")


def owner_of(token: bytes, text: bytes) -> Owner:
    """Parse ``text``, the JSON of a holder's owner. ``since`` of the result is the time of the granted attempt.

    In the JSON, ``since`` is the time of ``acquire()``. The time from there to the granted attempt is in ``token``. The
    field ``state`` is ``done`` for a lock that is kept after its release, and ``running`` for another with a period.
    """
    owner = Owner.parse(text)
    if token == DONE or "every" in owner.extra:
        owner = replace(owner, extra={"state": "done" if token == DONE else "running", **owner.extra})
    waited = waited_before(token) if owner.since else 0.0
    return replace(owner, since=owner.since + waited) if waited else owner


def mutex_kind(name: str, owner: Owner) -> str:
    """Return the kind of a lock that is a mutex in the store: ``"multilock"``, ``"striped"`` or ``"mutex"``."""
    return "multilock" if "multilock" in owner.extra else "striped" if is_stripe(name) else "mutex"


def rwlock_owner(owner: Owner, access: str) -> Owner:
    """Return ``owner`` with a field ``mode``, unless it has one: ``read`` for the access ``r``, ``write`` for ``w``."""
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
        owner = replace(owner, ttl=0.0)  # the ttl in the owner is that of a run, not of a queued or finished task
    return _Holder(replace(owner, extra={"state": state.decode(), **owner.extra}), token)


def _read_unknown(_value: bytes) -> tuple[str, list[_Holder]]:
    return "", []


_READERS: dict[bytes, Callable[[Any], tuple[str, list[_Holder]]]] = {b"string": _read_string, b"hash": _read_hash}


def read_lock_info(name: str, reply: Sequence[Any], node: str = "") -> LockInfo:
    """Return the lock ``name`` as a reply of ``describe.lua`` shows it. ``node``: the label of the node, or empty."""
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
