"""The multilock: several mutexes, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..flow.requests import Flow
from ..keys import Keys
from ..lock_info import LockInfo
from ..values import Claim
from .lock import Lock


class MultiLock(Lock):
    """All of several locks or none: made by ``backend.multilock(names, …)``, with all members of a lock.

    Each name is held as by ``lock(name)``, and excludes that lock. There is one lease, one token and one fencing token
    for all names; the fencing token grows for each of them. When one name is lost, all are. ``locked()`` returns
    whether any of the names is held by any holder.
    """

    names: Sequence[str] = ()
    all_keys: Sequence[Keys] = ()

    def new_claim(self) -> Claim:
        claim = super().new_claim()
        owner = claim.owner[:-1] + b',"multilock":%d}' % len(self.names)
        keys, *others = self.all_keys
        return claim._replace(owner=owner, keys=keys, more_keys=tuple(others), require_all=True)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """The lock of another holder; else this handle's own, with its digests if it holds all names."""
        own, found = None, 0
        for name, keys in zip(self.names, self.all_keys, strict=True):
            held = yield from self.store.algorithm.describe(name, keys)
            if held is not None and not self._is_ours(held):
                return held
            own, found = held or own, found + (held is not None)
        return own if own is None or found == len(self.names) else replace(own, digest="", digests=())
