"""The ZooKeeper backend. The claim whose ephemeral sequential znode is first in a lock's queue holds the lock."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.background.thread import SLACK
from ...core.background.work import Orphan, background
from ...core.flow.requests import Fault, Flow
from ...core.lock_info import LockInfo
from ...core.primitives.base import MUTEX, Primitive
from ...core.process.mutex import new_mutex
from ...core.values import Claim, Lease, Refusal, Seconds, seconds
from ...errors import LockUnavailable
from ..storage import StorageBackend, call_storage
from .contenders import Contender, Contenders
from .recipe import FINAL_REQUEST_SECONDS, Recipe, encode_data, escaped
from .session import NoZnode, Session, Unanswered, kazoo_client

REMOVE_RETRY_SECONDS = 0.2  # pause before another try to remove a znode while the ensemble doesn't reply


class LeaseEnd(Orphan):
    """The scheduled removal of a znode when its lease ends. An extension of the lease postpones it."""

    def release_flow(self) -> Flow[bool]:
        backend: Any = self.store
        return call_storage(self.claim.name, backend.end, self.claim)


class ZooKeeperBackend(StorageBackend):
    """Locks in a ZooKeeper ensemble. Raises ``ModuleNotFoundError`` if kazoo is not installed.

    - ``location``: ``host:port,host:port``, optionally followed by ``/chroot``.
    - ``session_timeout`` (the ttl): seconds after which the ensemble frees the locks of a process that has stopped
      responding; the servers may grant another timeout. A lease lasts for the ttl, but at most half the timeout.
    - ``connect_timeout`` (5): seconds for which a request waits for a connection.
    - ``node_timeout`` (2): seconds for which a request waits for a reply.
    - other options: those of `Backend`.

    Waiters acquire the lock in order of arrival. Source of the algorithm: ZooKeeper documentation, "Recipes and
    Solutions", "Locks" and "Recoverable Errors and the GUID".
    """

    not_adopting = "its locks end with the session of the process that acquired them"
    max_wait = math.inf  # a waiter's session keeps the watch of the znode in front
    fair = MUTEX  # the queue is always in order of arrival, so fair=True needs no special primitive

    def __init__(
        self,
        location: str,
        *,
        session_timeout: Seconds | None = None,
        connect_timeout: Seconds = 5,
        node_timeout: Seconds = 2,
        **options: Any,
    ) -> None:
        super().__init__(location, **options)
        if not isinstance(location, str) or not location.partition("/")[0]:
            raise ValueError(
                f"LOCATION of {type(self).__name__} must be host:port,host:port[/chroot], not {location!r}"
            )
        kazoo_client()
        self.hosts, _, chroot = location.partition("/")
        self.session_timeout = self.ttl if session_timeout is None else seconds(session_timeout, "session_timeout")
        self.connect_timeout = seconds(connect_timeout, "connect_timeout")
        self.node_timeout = seconds(node_timeout, "node_timeout")
        self._root = "/".join(["", *filter(None, chroot.split("/")), escaped(self.key_prefix)])
        self._reset()

    def _reset(self) -> None:
        self._opening = new_mutex()
        self._session: Session | None = None
        self._contenders = Contenders()
        self._recipe = Recipe(self._root, self._connect, self._contenders, self.clock)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        if self._session is not None:
            self._session.abandon()
        self._reset()

    def _connect(self) -> Session:
        session = self._session
        if session is not None and not session.broken:
            return session
        if self._opening._is_owned():  # type: ignore[attr-defined]  # in a signal's handler, that would wait for itself
            raise LockUnavailable(
                "", "a signal handler has interrupted the start of the session: try again after the handler"
            )
        with self._opening:
            if self._session is not None and self._session.broken:
                self._session.stop(0)
                self._session = None
            if self._session is None:
                ended = self._contenders.end_session
                self._session = Session(self.hosts, self.session_timeout, self.node_timeout, self.clock, ended)
            return self._session

    def close(self) -> None:
        """End the session. The backend can be used again afterwards.

        The session stays open while this process holds or waits for a lock, because ending the session frees its locks.
        """
        super().close()
        with self._opening:
            session, self._session = self._session, None  # first: a claim that joins now waits for the next session
            if session is None or self._contenders:
                self._session = session
                return
        session.stop(self.node_timeout, report=False)  # the next session may have begun when this one has ended

    @property
    def _until(self) -> float:
        """The time (seconds of the clock) at which a request that is sent now gives up without a connection."""
        return self.clock() + self.connect_timeout

    # ── acquire, extend and release ──────────────────────────────────────────────────────────

    def attempt(
        self, primitive: Primitive, claim: Claim, asked: float, deadline: float, wake: Callable[[], Any]
    ) -> Lease | Refusal:
        """Queue ``claim``, and return its lease if it is first in the queue, otherwise a refusal.

        A claim that is refused at its last attempt leaves the queue. ``asked``: the time of the call. Under asyncio the
        call may have waited for a free thread since; without a connection, this wait counts towards
        ``connect_timeout``. Raises ``LockUnavailable``.
        """
        now = self.clock()
        until = (now if self._connect().connected else asked) + self.connect_timeout
        if asked < deadline or self._contenders.get(claim.token) is not None:
            until = min(until, max(deadline, asked + FINAL_REQUEST_SECONDS))
        outcome = self._recipe.try_acquire(claim, deadline - now, until, wake)
        if isinstance(outcome, Lease):
            self._hold_until(outcome, outcome.since + claim.ttl)
        elif asked >= deadline:
            with contextlib.suppress(LockUnavailable):  # it is removed in the background
                self._remove(claim, FINAL_REQUEST_SECONDS)
        return outcome

    def abandon(self, primitive: Primitive, claim: Claim) -> None:
        """Schedule the removal of the znode of ``claim``, if the claim is queued. Does not block."""
        if self._contenders.leave(claim.token) is not None:
            self._remove_later(claim, 0.0)

    def _remove_later(self, claim: Claim, delay: float) -> None:
        orphan = Orphan(self, MUTEX, claim, math.inf)  # repeated until it succeeds
        background.schedule_release(claim.token, orphan, delay)

    def _hold_until(self, lease: Lease, ends: float) -> bool:
        """Schedule the removal of the lease's znode for the time ``ends``. Returns ``False`` if removal has begun."""
        contender = self._contenders.get(lease.claim.token)
        if contender is None or not self._contenders.hold_until(contender, ends):
            return False
        end = LeaseEnd(self, MUTEX, lease.claim, math.inf)
        background.schedule_release(contender.end_token, end, ends - self.clock() + SLACK)  # never early
        return True

    def end(self, claim: Claim) -> bool:
        """Remove the znode of ``claim`` if its lease has ended. Returns whether the znode existed."""
        return self._contenders.leave(claim.token, self.clock()) is not None and self.release(claim)

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        until = min(self.clock() + self.connect_timeout, lease.valid_until)
        while True:
            self._connect().wait(until)
            (outcome,) = self.extend_many([(lease, ttl)])
            if not isinstance(outcome, Fault):
                return outcome
            silent = isinstance(outcome.error, Unanswered)
            if not silent or self.clock() >= until:  # otherwise the connection was lost: retry on a new connection
                raise outcome.error

    def extend_many(self, leases: Sequence[tuple[Lease, float]]) -> list[Lease | Fault | None]:
        """Extend each lease to its ttl in seconds. All znodes are written at the same time.

        Returns for each lease the new lease, ``None`` if the lease is lost, or a `Fault` if the write failed. A write
        that was confirmed proves that the session is alive.
        """
        session, start = self._connect(), self.clock()
        until = start + self.node_timeout
        writes: list[tuple[Lease, float, Contender, Any] | None] = []
        for lease, ttl in leases:
            contender = self._contenders.get(lease.claim.token)
            if contender is None or contender.path is None or start >= lease.valid_until:
                writes.append(None)
                continue
            if contender.ends is not None and contender.ends < until:  # while a reply may arrive, the znode must stay
                self._hold_until(lease, until)
            data = encode_data(lease.claim, ttl, start - lease.since)
            writes.append((lease, ttl, contender, session.send("set", contender.path, data)))
        return [write and self._extended(session, start, *write) for write in writes]

    def _extended(
        self, session: Session, start: float, lease: Lease, ttl: float, contender: Contender, pending: Any
    ) -> Lease | Fault | None:
        """Return the outcome of an extension. ``pending``: the result of its write, sent at the time ``start``."""
        try:
            session.answer(pending, start + self.node_timeout)
        except NoZnode:
            self._contenders.forget(contender)
            return None
        except LockUnavailable as error:
            return Fault(error, where=self.hosts)
        if not self._hold_until(lease, start + ttl):  # too late: the znode's removal has begun
            return None
        return self._recipe.lease(contender, start, ttl, lease.since)

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        if keep > 0:  # the znode stays for this time
            return self.extend(Lease.granted(claim, self.clock()), keep) is not None
        return self._remove(claim, self.node_timeout)

    def _remove(self, claim: Claim, timeout: float) -> bool:
        contender = self._contenders.leave(claim.token)
        if contender is None:
            return False
        try:
            connected = self._connect().connected  # without a connection, don't wait for one
            return self._recipe.remove(contender, self.clock() + timeout if connected else 0.0)
        except LockUnavailable:
            self._remove_later(claim, REMOVE_RETRY_SECONDS)
            raise

    # ── inspection ───────────────────────────────────────────────────────────────────────────

    def describe_once(self, name: str) -> LockInfo | None:
        return self._recipe.describe(name, self._until)

    def names(self) -> Iterable[str]:
        return self._recipe.lock_names(self._until)

    def force_release_once(self, name: str, digest: str) -> bool:
        return self._recipe.force_release(name, digest, self._until)
