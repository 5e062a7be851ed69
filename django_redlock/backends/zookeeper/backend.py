"""The ZooKeeper backend. The claim whose ephemeral sequential znode is first in a lock's queue holds the lock."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ...core.flow.requests import Fault, Flow
from ...core.lock_info import LockInfo
from ...core.primitives.base import MUTEX, Primitive
from ...core.process.mutex import new_mutex
from ...core.renewal.registry import renewal
from ...core.values import Claim, Lease, OnRefusal, Refusal, Seconds, seconds
from ...core.waiting.waiters import AwaitWakeUp
from ...errors import LockUnavailable
from ..storage import StorageAlgorithm, StorageBackend, call_storage
from . import inspection
from .contenders import Contender, Contenders
from .recipe import FINAL_REQUEST_SECONDS, Recipe, encode_data, escaped
from .session import NoZnode, Session, Unanswered, ZooKeeperError, kazoo_client


class ZooKeeperAlgorithm(StorageAlgorithm):
    """The algorithm for ZooKeeper. A claim keeps its place in the queue of the lock while it waits."""

    _backend: ZooKeeperBackend

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        backend = self._backend
        undo = partial(backend.leave, claim)
        while True:
            asked = backend.clock()
            outcome: Lease | Refusal = yield from call_storage(backend.attempt_until, claim, deadline, asked, undo=undo)
            if isinstance(outcome, Lease) or asked >= deadline:
                return outcome
            yield AwaitWakeUp(claim, max(0.0, deadline - backend.clock()))

    def cancel(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Have the znode of an interrupted acquire removed in the background. Returns whether the claim was queued."""
        left: bool = yield from call_storage(self._backend.leave, claim)
        return left

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[Sequence[Lease | Fault | None]]:
        outcomes: list[Lease | Fault | None] = yield from call_storage(self._backend.extend_many, leases)
        return outcomes


class ZooKeeperBackend(StorageBackend):
    """Locks in a ZooKeeper ensemble. ``location``: ``host:port,host:port``, optionally followed by ``/chroot``.

    ``session_timeout``: seconds after which the ensemble frees the locks of a process that has stopped responding
    (default: the ttl; the servers may grant a different timeout). A lease lasts for the ttl, but at most for half of
    the session timeout. ``connect_timeout``: seconds for which a request waits for a connection. ``node_timeout``:
    seconds for which a request waits for a reply. Other options as for `Backend`. Raises ``ModuleNotFoundError`` if
    kazoo is not installed.

    Waiters get the lock in order of arrival. Source of the algorithm: ZooKeeper documentation, "Recipes and Solutions",
    "Locks" and "Recoverable Errors and the GUID".
    """

    not_adopting = "its locks end with the session of the process that acquired them"
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
        self.algorithm = ZooKeeperAlgorithm(self)
        self._reset()

    def _reset(self) -> None:
        self._opening = new_mutex()
        self._session: Session | None = None
        self._contenders = Contenders(self._remove, self.clock)
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
            raise self._unavailable(
                "", Unanswered("a signal handler has interrupted the start of the session: try again after the handler")
            )
        with self._opening:
            if self._session is not None and self._session.broken:
                self._session.stop(0)
                self._session = None
            if self._session is None:
                ended = partial(_session_ended, self._contenders)
                self._session = Session(self.hosts, self.session_timeout, self.node_timeout, self.clock, ended)
            return self._session

    def close(self) -> None:
        """End the session. The backend can be used again afterwards.

        The session goes on while this process holds or waits for a lock, because its end would free the lock.
        """
        super().close()
        with self._opening:
            session, self._session = self._session, None  # first: a claim that joins now waits for the next session
            if session is None or self._contenders:
                self._session = session
                return
        session.stop(self.node_timeout, report=False)  # the next session may have begun when this one has ended

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[float]:
        """Context manager that turns `ZooKeeperError` into ``LockUnavailable`` for the lock ``name``.

        Yields the deadline for the requests in the block, in seconds of the backend's clock.
        """
        try:
            yield self.clock() + self.connect_timeout
        except ZooKeeperError as error:
            raise self._unavailable(name, error) from error

    def _unavailable(self, name: str, error: ZooKeeperError) -> LockUnavailable:
        result = LockUnavailable(name, f"ZooKeeper at {self.hosts} is unavailable: {error}", {self.hosts: error})
        result.__cause__ = error
        return result

    # ── acquire, extend and release ──────────────────────────────────────────────────────────

    def acquire_once(self, claim: Claim) -> Lease | Refusal:
        """Try once to acquire the lock, without waiting. The claim is granted if it is first in the lock's queue."""
        now = self.clock()
        return self.attempt_until(claim, now, now)

    def attempt_until(self, claim: Claim, deadline: float, asked: float) -> Lease | Refusal:
        """Queue ``claim``, and return its lease if it is first in the queue, otherwise a refusal.

        ``asked``: when the caller made the request. If ``asked`` is not before ``deadline``, this is the last try, and
        a refused claim leaves the queue. Under asyncio the request may have waited for a free thread since ``asked``.
        While there is no connection, the wait for a thread counts towards ``connect_timeout``. Both times are seconds
        of the backend's clock. Raises ``LockUnavailable``.
        """
        now = self.clock()
        until = (now if self._connect().connected else asked) + self.connect_timeout
        if asked < deadline or self._contenders.get(claim.token) is not None:
            until = min(until, max(deadline, asked + FINAL_REQUEST_SECONDS))
        try:
            if now > asked and now >= until:
                raise Unanswered("no thread was free in time: earlier requests have no reply")
            outcome = self._recipe.try_acquire(claim, deadline - now, until)
        except ZooKeeperError as error:
            self.leave(claim)
            raise self._unavailable(claim.name, error) from error
        if isinstance(outcome, Refusal) and asked >= deadline:
            self._recipe.withdraw(claim)
        return outcome

    def leave(self, claim: Claim) -> bool:
        """Remove ``claim`` from the queue without blocking. Returns whether the claim was queued.

        The znode is removed in the background.
        """
        contender = self._contenders.leave(claim.token)
        if contender is not None:
            self._contenders.discard(contender)
        return contender is not None

    def subscribe(self, claim: Claim, wake: Any) -> Any:
        contender = self._contenders.get(claim.token)
        if contender is None:  # the session has ended: queue again
            wake()
            return lambda: None
        contender.subscribe(wake)
        return lambda: contender.subscribe(None)

    def extend(self, lease: Lease, ttl: float) -> Lease | None:
        until = min(self.clock() + self.connect_timeout, lease.valid_until)
        while True:
            self._connect().wait(until)
            (outcome,) = self.extend_many([(lease, ttl)])
            if not isinstance(outcome, Fault):
                return outcome
            silent = isinstance(outcome.error.__cause__, Unanswered)
            if not silent or self.clock() >= until:  # otherwise the connection was lost: retry on a new connection
                raise outcome.error

    def extend_many(self, leases: Sequence[tuple[Lease, float]]) -> list[Lease | Fault | None]:
        """Extend each lease to its ttl in seconds. All znodes are written at the same time.

        Returns for each lease the new lease, ``None`` if the lease is lost, or a `Fault` if the write failed. A write
        that was confirmed proves that the session is alive.
        """
        session, start = self._connect(), self.clock()
        until = start + self.node_timeout
        sent = [self._sent(session, lease, ttl, start, until) for lease, ttl in leases]
        return [
            each and self._extended(session, lease, ttl, each, start, until)
            for (lease, ttl), each in zip(leases, sent, strict=True)
        ]

    def _sent(
        self, session: Session, lease: Lease, ttl: float, start: float, until: float
    ) -> tuple[Contender, Any] | None:
        contender = self._contenders.get(lease.claim.token)
        if contender is None or contender.path is None or start >= lease.valid_until:
            return None
        if contender.ends is not None and contender.ends < until:  # while a reply may arrive, the znode must stay
            self._contenders.discard_at(contender, until)
        data = encode_data(lease.claim, ttl, start - lease.since)
        return contender, session.send("set", contender.path, data) if session.connected else None

    def _extended(
        self, session: Session, lease: Lease, ttl: float, sent: tuple[Contender, Any], start: float, until: float
    ) -> Lease | Fault | None:
        contender, pending = sent
        if pending is None:
            return Fault(self._unavailable(lease.claim.name, Unanswered("not connected")), where=self.hosts)
        try:
            session.answer(pending, until)
        except NoZnode:
            self._contenders.leave(lease.claim.token)
            return None
        except ZooKeeperError as error:
            return Fault(self._unavailable(lease.claim.name, error), where=self.hosts)
        if not self._contenders.discard_at(contender, start + ttl):  # too late: the znode's removal has begun
            return None
        return self._recipe.lease(contender, start, ttl, lease.since)

    def release(self, claim: Claim, keep: float = 0.0) -> bool:
        contender = self._contenders.get(claim.token) if keep > 0 else self._contenders.leave(claim.token)
        if contender is None:
            return False
        session, until = self._connect(), self.clock() + self.node_timeout
        self._recipe.unwatch(contender)
        gone = False
        try:
            with self._asking(claim.name):
                if contender.path is None or not session.connected:
                    raise Unanswered("not connected")
                if keep > 0:
                    self._contenders.discard_at(contender, self.clock() + keep)
                    session.ask("set", contender.path, encode_data(claim, keep), until=until)
                else:
                    session.ask("delete", contender.path, until=until)
                gone = True
                return True
        except NoZnode:
            gone = True
            self._contenders.leave(claim.token)
            return False
        finally:
            if not gone and keep <= 0:
                self._contenders.discard(contender)

    def _remove(self, contender: Contender) -> None:
        self._recipe.remove(contender, self.clock() + self.node_timeout)

    # ── inspection ───────────────────────────────────────────────────────────────────────────

    def describe_once(self, name: str) -> LockInfo | None:
        with self._asking(name) as until:
            return inspection.describe(self._recipe, name, until)

    def names(self) -> Iterable[str]:
        with self._asking("") as until:
            return inspection.lock_names(self._recipe, until)

    def force_release_once(self, name: str, digest: str) -> bool:
        with self._asking(name) as until:
            return inspection.force_release(self._recipe, name, digest, until)

    def _health(self) -> Flow[list[dict[str, Any]]]:
        servers = [server.strip() for server in self.hosts.split(",")]
        rows: list[dict[str, Any]] = yield from call_storage(
            lambda: [inspection.server_health(server, self.node_timeout) for server in servers]
        )
        return rows


def _session_ended(line: Contenders) -> None:
    """Handle the end of a session: mark its leases as lost, and wake its waiters, which then queue again.

    ``line``: the contenders of the session. The ensemble has removed all znodes of the session.
    """
    for contender in line.clear():
        renewal.mark_lost(contender.claim.token, "the ZooKeeper session has ended")
        contender.change()
