"""The claims of this process in ZooKeeper's queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ...core.process.mutex import new_mutex
from ...core.values import Claim


class Contender:
    """A claim in the queue of a lock, as its holder or as a waiter.

    ``prefix``: the beginning of the name of its znode. ``path``: the path of its znode; ``None`` until the ensemble has
    confirmed the znode. ``written``: when the last confirmed write was sent; it proves that the session was alive at or
    after that time. ``ends``: when the lease ends unless it is extended; the znode is removed then. ``written`` and
    ``ends`` are seconds of the backend's clock. ``leaves``: whether the znode is to be removed, or is removed already.
    ``watches``: the path of the znode in front that is watched.
    """

    def __init__(self, claim: Claim, prefix: str) -> None:
        self.claim = claim
        self.prefix = prefix
        self.path: str | None = None
        self.fencing_token = 0
        self.written: float | None = None
        self.ends: float | None = None
        self.leaves = False
        self.watches: str | None = None
        self._mutex = new_mutex()
        self._changed = False
        self._wake: Callable[[], Any] | None = None

    def watch(self, path: str) -> Callable[..., None]:
        """Record that the znode at ``path`` is watched, and forget earlier changes.

        Returns the function that kazoo must call when the znode changes.
        """
        with self._mutex:
            self.watches, self._changed = path, False
        return self.change

    def change(self, _event: Any = None) -> None:
        """Record a change of the queue, and wake the waiter. Called by kazoo when the watched znode changes."""
        with self._mutex:
            self._changed, wake = True, self._wake
        if wake is not None:
            wake()

    def subscribe(self, wake: Callable[[], Any] | None) -> None:
        """Have ``wake`` called at every change of the queue, and at once if there was a change since `watch`.

        ``None`` ends the subscription.
        """
        with self._mutex:
            self._wake, changed = wake, self._changed
        if changed and wake is not None:
            wake()


class Contenders:
    """The contenders of this process by token, until their znodes have been removed."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._here: dict[bytes, Contender] = {}
        self._freed: deque[bytes] = deque(maxlen=256)

    def __bool__(self) -> bool:
        return bool(self._here)

    def get(self, token: bytes) -> Contender | None:
        """Return the contender with this token; ``None`` if there is none, or its znode is to be removed."""
        found = self._here.get(token)
        return None if found is None or found.leaves else found

    def join(self, contender: Contender) -> bool:
        """Add ``contender``, and return ``True``. Returns ``False`` if its claim was released before this call."""
        with self._mutex:
            if contender.claim.token in self._freed:
                return False
            self._here[contender.claim.token] = contender
            return True

    def hold_until(self, contender: Contender, ends: float) -> bool:
        """Set the end of the lease of ``contender``. Returns ``False`` if its znode is to be removed, or removed."""
        with self._mutex:
            if self.get(contender.claim.token) is not contender:
                return False
            contender.ends = ends
            return True

    def leave(self, token: bytes, now: float | None = None) -> Contender | None:
        """Mark the contender with ``token`` as one whose znode is to be removed, and return it.

        ``now``: do so only if its lease has ended by this time. If there is no contender with this token, returns
        ``None``, and a later `join` with this token returns ``False``.
        """
        with self._mutex:
            contender = self._here.get(token)
            if contender is None:
                self._freed.append(token)
            elif now is not None and (contender.ends is None or contender.ends > now):
                return None
            else:
                contender.leaves = True
            return contender

    def discard(self, contender: Contender) -> None:
        """Mark ``contender`` as one whose znode is to be removed, although the end of a session has removed it here."""
        with self._mutex:
            contender.leaves = True
            self._here[contender.claim.token] = contender

    def forget(self, contender: Contender) -> None:
        """Remove ``contender``, whose znode has been removed."""
        with self._mutex:
            if self._here.get(contender.claim.token) is contender:
                del self._here[contender.claim.token]

    def clear(self) -> list[Contender]:
        """Remove all contenders after the end of the session, which has removed their znodes, and return them."""
        with self._mutex:
            gone = list(self._here.values())
            self._here.clear()
        return gone
