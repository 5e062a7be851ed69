"""Descriptions of live locks, parsed from the values in the store, for the admin, the commands and ``held()``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class LockInfo:
    """A live lock as the store shows it. Times are seconds.

    - ``remaining``: the time left of the lease; ``None`` if the key has no expiry.
    - ``waiters``: the number of waiters. ``queue``: the owners of the waiters, if the caller asked for the queue.
    - ``nodes``: labels of the nodes that have granted the lock.
    - ``digest``: identifies this acquisition without its token. ``force_release`` with this digest releases no later
      acquisition.
    - ``token_prefix``: the beginning of the token, long enough to find in a log and too short to release the lock.
    - ``owner``: the first holder. ``holders``: all holders of a lock that can have several.
    - ``digests``: one digest for each holder of a shared lock, in the order of ``holders``. ``force_release`` with one
      of them releases only this holder.
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

        ``ttl - remaining`` is the time since the grant or the last renewal. The store keeps only the ttl of
        ``acquire()``. After an ``extend()`` to another ttl, the value is the larger of this ttl and `remaining`, and
        may be wrong.
        """
        return max(self.owner.ttl, self.remaining) if self.owner.ttl and self.remaining is not None else None

    @property
    def since(self) -> float | None:
        """The Unix time at which the granted attempt was sent, by the holder's clock; ``None`` if unknown.

        The grant may be up to five seconds later, because an attempt can wait in the store.
        """
        return self.owner.since or None

    def matches(self, lease: Lease) -> bool:
        """Return whether ``lease`` is the lease that this description shows, or one of the leases of a shared lock."""
        return claim_digest(lease.claim) in (self.digest, *self.digests)


class Listing(NamedTuple):
    """The live locks that a backend has found.

    ``scanned``: the approximate number of keys read. ``complete``: whether the list has all live locks that match.
    ``unanswered``: the errors of unavailable servers of a Redis Cluster, by server.
    """

    locks: list[LockInfo]
    scanned: int
    complete: bool
    unanswered: Mapping[str, Exception] = {}


def by_trouble(held: LockInfo) -> tuple[float, ...]:
    """Return a sort key: most waiters first, then the longest wait, then the longest hold."""
    forever = float("inf")
    return -held.waiters, min((owner.since or forever for owner in held.queue), default=0.0), held.since or forever


def claim_digest(claim: Claim) -> str:
    """Return the SHA-1 in hex of the stored value of ``claim``, as the Lua scripts compute it."""
    return _sha1(claim.token + b" " + claim.owner)


def _sha1(value: bytes) -> str:
    return sha1(value, usedforsecurity=False).hexdigest()


def split_value(value: bytes) -> tuple[bytes, bytes]:
    """Return token and owner of a mutex's value. A value of other software, without a space, counts as a token."""
    token, _, owner = value.partition(b" ")
    return token, owner


def visible_token_prefix(token: bytes) -> str:
    """Return the first quarter of the token, at most eight characters, so that the token stays secret."""
    return "" if token == DONE else token[: min(8, len(token) // 4)].decode(errors="replace")


def owner_of(token: bytes, text: bytes) -> Owner:
    """Return the `Owner` in the JSON ``text``. ``since`` becomes the time of the attempt that was granted.

    The field ``state`` of a lock with ``every=`` is set: ``done`` after the release, otherwise ``running``.
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


def _read_hash(value: Sequence[bytes]) -> tuple[str, list[Owner]]:
    """Return the kind and the holders in a stored hash: a lock with several holders, or the calls of a task."""
    fields, records = value[::2], value[1::2]
    tasks = [found for record in records if (found := _TASK.fullmatch(record))]
    if tasks:
        owners = [_task_owner(each) for each in tasks]
        return "task", sorted(owners, key=lambda owner: (owner.extra["state"] != "running", owner.since))
    owners = [owner_of(*split_value(holder)) for holder in fields]
    shares = [found for record in records if (found := _SHARE.fullmatch(record))]
    kind = shares[0][1].decode() if shares else ""
    if kind == "rwlock":
        owners = [rwlock_owner(owner, share[2].decode()) for owner, share in zip(owners, shares, strict=False)]
    return kind, owners


def _task_owner(found: re.Match[bytes]) -> Owner:
    state, token, text = found.groups()
    owner = owner_of(token, text)
    if state != b"running":
        owner = replace(owner, ttl=0.0)  # the ttl in the owner is that of a run, not of a queued or finished task
    return replace(owner, extra={"state": state.decode(), **owner.extra})


def read_lock_info(name: str, reply: Sequence[Any], node: str = "") -> LockInfo:
    """Return the lock ``name`` as a reply of ``describe.lua`` shows it. ``node``: the label of the node, or empty."""
    if len(reply) == 2:  # a mutex without waiters: its value, and the ms until it expires
        value, left = reply
        reply = b"string", value, left, 0, _sha1(value).encode()
    data_type, value, left, waiters, digest, *more = reply
    kind, token = data_type.decode(), b""
    owners: list[Owner] = []
    if data_type == b"string":
        token, text = split_value(value)
        owners = [owner_of(token, text)]
        kind = mutex_kind(name, owners[0])
    elif data_type == b"hash":
        kind, owners = _read_hash(value)
    return LockInfo(
        name=name,
        kind=kind or data_type.decode(),
        owner=owners[0] if owners else Owner(),
        remaining=_seconds(left),
        waiters=waiters,
        nodes=(node,) if node else (),
        digest=digest.decode(),
        queue=tuple(Owner.parse(split_value(entry)[1]) for entry in more[0]) if more else (),
        token_prefix=visible_token_prefix(token),
        holders=tuple(owners),
        digests=tuple(map(_sha1, value[::2])) if data_type == b"hash" and kind != "task" else (),
    )


def _seconds(left: int) -> float | None:
    return None if left == -1 else max(0, left) / 1000
