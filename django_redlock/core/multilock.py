"""The multilock: several mutexes, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .held import Held
from .keys import Keys
from .lease import Claim
from .lock import Lock
from .requests import Flow


class MultiLock(Lock):
    """All of several locks or none: made by ``backend.multilock(names, …)``, it has all members of a lock.

    Each name is held as ``lock(name)`` would hold it, and excludes that. One lease, one token and one fencing token,
    which grows for each of the names, are about all of them; when one of them is lost, all are. ``locked()`` says
    whether anybody holds any of them.
    """

    names: Sequence[str] = ()
    _places: Sequence[Keys] = ()

    def _claim(self) -> Claim:
        claim = super()._claim()
        owner = claim.owner[:-1] + b',"multilock":%d}' % len(self.names)
        keys, *others = self._places
        return claim._replace(owner=owner, keys=keys, others=tuple(others), every=True)

    def _describing(self) -> Flow[Held | None]:
        """A holding of another; else our own, recognizable as such if it is all that we want."""
        mine, found = None, 0
        for name, keys in zip(self.names, self._places, strict=True):
            held = yield from self._store.rule.describe(name, keys)
            if held is not None and not self._is_mine(held):
                return held
            mine, found = held or mine, found + (held is not None)
        return mine if mine is None or found == len(self.names) else replace(mine, digest="", digests=())
