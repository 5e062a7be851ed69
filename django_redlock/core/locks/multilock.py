"""The multilock: acquires several mutexes together, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..flow.requests import Flow
from ..keys import Keys
from ..lock_info import LockInfo
from ..values import Claim, Lease
from .lock import Lock


class MultiLock(Lock):
    """A handle that holds several mutexes, all or none. It has the methods and properties of a `Lock`.

    Created by ``backend.multilock(names, …)``. Each name is locked as with ``lock(name)``, and excludes other holders
    of that lock. All names share one lease, one token and one fencing token, which grows for each name. When one name
    is lost, all names are lost. ``locked()`` returns whether any of the names is held by any holder.
    """

    names: Sequence[str] = ()
    all_keys: Sequence[Keys] = ()

    def new_claim(self) -> Claim:
        claim = super().new_claim()
        owner = claim.owner[:-1] + b',"multilock":%d}' % len(self.names)
        return claim._replace(owner=owner, all_keys=tuple(self.all_keys), require_all=True)

    def names_of(self, lease: Lease) -> tuple[str, ...]:
        return tuple(self.names)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """Return one lock of the multilock as the store shows it; ``None`` if all names are free.

        Returns the first lock that has another holder. If no lock has another holder, returns a lock that this handle
        holds; its description has digests only if the handle holds all names.
        """
        own, found = None, 0
        for name, keys in zip(self.names, self.all_keys, strict=True):
            held = yield from self.store.algorithm.describe(name, keys)
            if held is not None and not self.is_ours(held):
                return held
            own, found = held or own, found + (held is not None)
        return own if own is None or found == len(self.names) else replace(own, digest="", digests=())
