"""The claims of this process in ZooKeeper's queues, and the thread that removes the znodes of abandoned claims."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ...core.events import logger
from ...core.process import fork
from ...core.process.mutex import new_mutex
from ...core.process.threads import Kind, start
from ...core.values import Claim

REMOVE_RETRY_SECONDS = 0.2  # pause between two tries to remove a znode while the ensemble doesn't reply
REMOVER_IDLE_SECONDS = 5.0  # the thread ends after this time without work


class Contender:
    """A claim in the queue of a lock, as its holder or as a waiter.

    ``prefix``: the beginning of the name of its znode. ``path``: the path of its znode; ``None`` until the ensemble has
    confirmed the znode. ``written``: when the last confirmed write was sent; it proves that the session was alive at or
    after that time. ``ends``: when the lease ends unless it is extended; the znode is removed then. ``written`` and
    ``ends`` are seconds of the backend's clock. ``watches``: the path of the znode in front that is watched.
    """

    def __init__(self, claim: Claim, prefix: str) -> None:
        self.claim = claim
        self.prefix = prefix
        self.path: str | None = None
        self.fencing_token = 0
        self.written: float | None = None
        self.ends: float | None = None
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
    """The contenders of this process by token. A thread removes the znodes of discarded contenders, and retries.

    ``remove`` removes the znode of a contender, or raises an error. ``clock`` is the backend's.
    """

    def __init__(self, remove: Callable[[Contender], None], clock: Callable[[], float]) -> None:
        self._remove = remove
        self._clock = clock
        # Reentrant, because a signal handler may use a lock, too. Entered directly, not through the condition, for the
        # reason in `core.renewal.registry`.
        self._mutex = new_mutex()
        self._changed = threading.Condition(self._mutex)
        self._here: dict[bytes, Contender] = {}
        self._leaving: dict[bytes, Contender] = {}
        self._freed: deque[bytes] = deque(maxlen=256)
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        return bool(self._here or self._leaving)

    def get(self, token: bytes) -> Contender | None:
        """Return the contender with this token; ``None`` if there is none."""
        return self._here.get(token)

    def join(self, contender: Contender) -> bool:
        """Add ``contender``, and return ``True``. Returns ``False`` if its claim was released before this call."""
        with self._mutex:
            if contender.claim.token in self._freed:
                return False
            self._here[contender.claim.token] = contender
            return True

    def discard_at(self, contender: Contender, ends: float) -> bool:
        """Have ``contender`` discarded at the time ``ends`` (seconds of the backend's clock). Returns ``True``.

        Returns ``False`` if this collection no longer contains the contender. Its znode has been or will be deleted.
        """
        with self._mutex:
            if self._here.get(contender.claim.token) is not contender:
                return False
            contender.ends = ends
            self._wake_thread()
            return True

    def leave(self, token: bytes) -> Contender | None:
        """Remove the contender with ``token`` from this collection, and return it. The caller must delete its znode.

        If there is no contender with this token, returns ``None``, and a later `join` with this token returns
        ``False``.
        """
        with self._mutex:
            contender = self._here.pop(token, None)
            if contender is None:
                self._freed.append(token)
            return contender

    def discard(self, contender: Contender) -> None:
        """Remove ``contender`` from this collection, and have the background thread delete its znode.

        The thread finds the znode even if the reply to its creation never arrived.
        """
        with self._mutex:
            self._here.pop(contender.claim.token, None)
            self._leaving[contender.claim.token] = contender
            self._wake_thread()

    def clear(self) -> list[Contender]:
        """Remove all contenders, and return those that were not discarded.

        Called after the end of the session, which has removed all znodes.
        """
        with self._mutex:
            gone = list(self._here.values())
            self._here.clear()
            self._leaving.clear()
            self._changed.notify()
        return gone

    def _wake_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():  # not alive: its start has failed
            self._thread = start(Kind.ZOOKEEPER, self._run, postpones_forks=False)  # None: the next call tries again
        else:
            self._changed.notify()

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._mutex:
                if pause > 0:
                    self._changed.wait(pause)
                    if not self:
                        self._thread = None
                        return
                now = self._clock()
                for token, each in list(self._here.items()):
                    if each.ends is not None and each.ends <= now:
                        self._leaving[token] = self._here.pop(token)
                leaving = list(self._leaving.items())
            with fork.postponed:
                for token, each in leaving:
                    try:
                        self._remove(each)
                    except Exception as error:  # noqa: BLE001  (retry after any error, until the session ends)
                        logger.debug("the znode of lock %r can't be removed yet: %s", each.claim.name, error)
                        break  # other znodes are in the same ensemble, which would fail again
                    self._leaving.pop(token, None)
            with self._mutex:
                due = [each.ends - self._clock() for each in self._here.values() if each.ends is not None]
                pause = min(
                    [
                        REMOVE_RETRY_SECONDS if self._leaving else REMOVER_IDLE_SECONDS,
                        *(max(0.001, left) for left in due),
                    ]
                )
