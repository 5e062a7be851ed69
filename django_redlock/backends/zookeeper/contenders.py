"""The claims of this process in ZooKeeper's queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.background.work import background
from ...core.process.mutex import state_mutex
from ...core.values import Claim


@dataclass(eq=False)
class Contender:
    """A claim in the queue of a lock, as its holder or as a waiter.

    ``prefix``: the beginning of the znode's name. ``path``: the path of the znode; ``None`` until the ensemble has
    confirmed its creation. ``written``: the time at which the last confirmed write was sent; the session was alive
    then. ``ends``: the time at which the lease ends unless it is extended; the znode is then removed. Both times are
    seconds of the backend's clock. ``leaves``: whether the znode is being removed or was removed. ``wake``: wakes the
    waiter.
    """

    claim: Claim
    prefix: str
    path: str | None = None
    fencing_token: int = 0
    written: float | None = None
    ends: float | None = None
    leaves: bool = False
    wake: Callable[[], Any] | None = None

    @property
    def end_token(self) -> bytes:
        """The token under which the end of the lease is scheduled."""
        return b"end " + self.claim.token

    def change(self, _event: Any = None) -> None:
        """Wake the waiter, because the queue has changed. Called by kazoo when the watched znode changes."""
        if self.wake is not None:
            self.wake()


class Contenders:
    """The contenders of this process by token, until their znodes have been removed."""

    def __init__(self) -> None:
        self._here: dict[bytes, Contender] = {}

    def __bool__(self) -> bool:
        return bool(self._here)

    def get(self, token: bytes) -> Contender | None:
        """Return the contender with this token; ``None`` if there is none, or its znode is to be removed."""
        found = self._here.get(token)
        return None if found is None or found.leaves else found

    def add(self, contender: Contender) -> None:
        """Add ``contender``, unless it is present. The end of the previous session may have removed it."""
        with state_mutex:
            self._here[contender.claim.token] = contender

    def hold_until(self, contender: Contender, ends: float) -> bool:
        """Set the end of the lease of ``contender``. Returns ``False`` if its znode is being removed or was removed."""
        with state_mutex:
            if self.get(contender.claim.token) is not contender:
                return False
            contender.ends = ends
            return True

    def leave(self, token: bytes, now: float | None = None) -> Contender | None:
        """Mark the contender with ``token`` for removal of its znode, and return the contender.

        ``now``: mark the contender only if its lease has ended by this time. Returns ``None`` if no contender was
        marked.
        """
        with state_mutex:
            contender = self._here.get(token)
            if contender is None or (now is not None and (contender.ends is None or contender.ends > now)):
                return None
            contender.leaves = True
            return contender

    def forget(self, contender: Contender) -> None:
        """Remove ``contender``, whose znode has been removed."""
        with state_mutex:
            background.orphans.pop(contender.end_token, None)
            if self._here.get(contender.claim.token) is contender:
                del self._here[contender.claim.token]

    def end_session(self) -> None:
        """Handle the end of the session: mark its leases as lost, and wake its waiters, which then queue again.

        The ensemble has removed all znodes of the session.
        """
        gone = list(self._here.values())
        for contender in gone:
            self.forget(contender)
        for contender in gone:
            background.mark_lost(contender.claim.token, "the ZooKeeper session has ended")
            contender.change()
