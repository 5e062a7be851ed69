"""Interfaces between lock handles, algorithms and lock stores. Backends implement `Store`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from .events import Hook
from .flow.requests import Fault, Flow, FlowRequest
from .keys import Keys
from .lock_info import LockInfo
from .primitives.base import Primitive
from .values import Claim, Lease, OnRefusal, Refusal, Seconds

AcquireFree = Callable[[Primitive, Claim], Flow[Lease | None]]
HandOver = Callable[[Primitive, Claim, Claim], Flow[Lease | None]]
Extend = Callable[[Lease, float], Flow[Lease | Fault | None]]


class Algorithm(Protocol):
    """The rule by which a lease is granted: by one node, by a majority of nodes, or by a primary with its replicas.

    Every method returns a flow: a generator that yields requests to the store, receives the replies, and returns the
    result. ``primitive``: the kind of lock. ``claim``: the request of one ``acquire()``. All methods but ``extend`` and
    ``extend_many`` raise ``LockUnavailable`` when the store does not reply, or grants no locks at the moment. An
    optional method that an algorithm lacks is ``None``.
    """

    @property
    def acquire_free(self) -> AcquireFree | None:
        """Optional. Acquire a free lock in the cheapest way. Returns the lease; ``None``: `acquire` must be used."""

    @property
    def hand_over(self) -> HandOver | None:
        """Optional. Release the lock of one claim and acquire it for another claim, in one request.

        Returns the lease; ``None`` if the first claim did not hold the lock.
        """

    @property
    def extend(self) -> Extend | None:
        """Optional. Extend one lease. Unlike `extend_many`, may wait for a connection.

        Returns the outcome, as `extend_many` does.
        """

    def acquire(
        self, primitive: Primitive, claim: Claim, deadline: float, on_refusal: OnRefusal | None = None
    ) -> Flow[Lease | Refusal]:
        """Acquire the lock, waiting until ``deadline`` (monotonic seconds) at most.

        Returns the lease, or a `Refusal` if the lock stays held. ``on_refusal`` is called with each earlier refusal.
        """

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[Sequence[Lease | Fault | None]]:
        """Extend many leases in few requests. ``leases``: pairs of a lease and its new ttl in seconds.

        Returns an outcome for each lease, in order: the extended lease, ``None`` if the lease is lost, or a `Fault` if
        the outcome is unknown.
        """

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Release the lock. Other clients can acquire it only after ``keep`` seconds. Returns without waiting.

        The result is whether ``claim`` held the lock.
        """

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """Remove ``claim`` from the waiters, and release the lock if any attempt of ``claim`` was granted.

        Returns whether ``claim`` held the lock.
        """

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        """Return the lock as the store shows it, with its waiters if ``with_waiters``; ``None`` if the lock is free."""


class Queues(Protocol):
    """The queues of this process. Threads and tasks wait in them without sending requests, see `LocalQueues`.

    The methods are those of an `Algorithm`. A release may hand the lock over to a waiter of this process.
    """

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]: ...

    def release(self, primitive: Primitive, claim: Claim, keep: float) -> Flow[bool]: ...


class Store(Protocol):
    """A store of locks for handles: an algorithm, a clock, and methods that perform the requests of flows.

    ``clock``: returns monotonic seconds. ``max_ttl``: the longest lease in seconds. ``hook``: receives the lock events.
    """

    alias: str
    max_ttl: float
    clock: Callable[[], float]
    hook: Hook | None
    adopting: Primitive | None  # acquires a lock that another process has handed off; None: the store can't do it
    not_adopting: str  # why the store can't adopt locks

    @property
    def local_queues(self) -> Queues | None:
        """The queues in which callers of this process wait; ``None``: each caller waits in the store."""

    @property
    def key_prefix(self) -> str: ...

    @property
    def algorithm(self) -> Algorithm: ...

    def check_ttl(self, ttl: Seconds) -> float:
        """Return ``ttl`` in seconds. Raises ``TypeError`` unless it is a number or a ``timedelta``.

        Raises ``ValueError`` if the ttl is shorter than 0.003 seconds or longer than ``max_ttl``.
        """

    def server_of(self, keys: Keys) -> str:
        """Return the address of the Redis Cluster server that stores ``keys``; ``""`` for other stores."""

    def perform(self, request: FlowRequest) -> Any:
        """Perform ``request``, blocking the thread. Returns the reply, or a `Fault`."""

    def aperform(self, request: FlowRequest) -> Awaitable[Any]:
        """Perform ``request`` on the running event loop. Returns the reply, or a `Fault`."""
