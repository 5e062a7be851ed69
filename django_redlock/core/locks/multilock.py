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
    """All of several locks or none: made by ``backend.multilock(names, …)``, it has all members of a lock.

    Each name is held as ``lock(name)`` would hold it, and excludes that. One lease, one token and one fencing token,
    which grows for each of the names, are about all of them; when one of them is lost, all are. ``locked()`` says
    whether anybody holds any of them.
    """

    names: Sequence[str] = ()
    all_keys: Sequence[Keys] = ()

    def new_claim(self) -> Claim:
        claim = super().new_claim()
        owner = claim.owner[:-1] + b',"multilock":%d}' % len(self.names)
        keys, *others = self.all_keys
        return claim._replace(owner=owner, keys=keys, more_keys=tuple(others), require_all=True)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """A holding of another; else our own, recognizable as such if it is all that we want."""
        mine, found = None, 0
        for name, keys in zip(self.names, self.all_keys, strict=True):
            held = yield from self.store.algorithm.describe(name, keys)
            if held is not None and not self._is_ours(held):
                return held
            mine, found = held or mine, found + (held is not None)
        return mine if mine is None or found == len(self.names) else replace(mine, digest="", digests=())
