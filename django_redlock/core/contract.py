"""Protocols that connect handles, algorithms, the renewal and stores. Backends implement `Store`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from .events import Hook
from .flow.requests import Fault, Flow
from .keys import Keys
from .lock_info import LockInfo
from .primitives.base import Primitive
from .values import Claim, Lease, Refusal, Seconds
from .waiting.lease_extension import Extension


class Algorithm(Protocol):
    """Decides whether a lease is granted: by one node, by a majority of nodes, or by a primary with its replicas.

    Every method is a flow: a generator that yields requests and returns the result. All methods but ``extend_many``
    raise ``LockUnavailable`` when the store does not serve.
    """

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Acquire, waiting until ``deadline`` (monotonic seconds) at most. Returns a refusal if the lock stays held."""

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]:
        """Return the lease with ``ttl`` seconds from now; ``None`` if it is lost."""

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[Sequence[Lease | Fault | None]]:
        """Extend each lease by its ttl in seconds, in few requests. A `Fault` stands for a missing reply."""

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]:
        """Release the lock, after ``keep`` more seconds. Returns whether ``claim`` held it."""

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]:
        """Remove ``claim`` from the waiters and release all its attempts. Returns whether it held the lock."""

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]:
        """Return the holder of the lock, and on request its waiters; ``None`` if the lock is free."""


class Gate(Protocol):
    """A local queue: threads or tasks of one process pass it before they use the algorithm of the store."""

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]:
        """Acquire as `Algorithm.acquire` does, or wait behind other waiters of this process."""

    def release(self, primitive: Primitive, lease: Lease, keep: float) -> Flow[bool]:
        """Release as `Algorithm.release` does, or hand the lock over to a waiter of this process."""


class Store(Protocol):
    """A lock store: its algorithm, its clock, and the I/O for flows. No lease is longer than ``max_ttl`` seconds."""

    alias: str
    max_ttl: float
    clock: Callable[[], float]
    hook: Hook | None
    key_prefix: str
    adopting: Primitive | None  # acquires what another process has handed off; None: not supported
    not_adopting: str  # the reason

    @property
    def algorithm(self) -> Algorithm: ...

    def check_ttl(self, ttl: Seconds) -> float:
        """Return ``ttl`` in seconds. Raises ``TypeError`` or ``ValueError`` if the store gives no such lease."""

    def server_of(self, keys: Keys) -> str:
        """Return the address of the server that has the lock; ``""`` if unknown."""

    def local_queue_for(self, primitive: Primitive) -> Gate | None:
        """Return the local queue for locks of this kind; ``None`` if there is no local queue."""

    def perform(self, request: Any) -> Any:
        """Perform one request of a flow, blocking. Returns the reply, or a `Fault`."""

    def aperform(self, request: Any) -> Awaitable[Any]:
        """Perform one request of a flow on the running event loop. Returns the reply, or a `Fault`."""


class Renewable(Protocol):
    """The part of a handle that the renewal uses."""

    name: str

    @property
    def store(self) -> Store: ...

    @property
    def primitive(self) -> Primitive: ...

    @property
    def remaining(self) -> float: ...

    def current_lease(self) -> Lease | None:
        """Return the lease of the handle; ``None`` if it holds nothing."""

    def begin_renewal(self) -> Extension | None:
        """Begin the extension that is due. Returns ``None`` if the lease must not be extended now."""

    def on_extended(self, extension: Extension, outcome: Lease | Fault | None) -> None:
        """Process the outcome: the extended lease, a fault, or ``None`` when the lease is lost."""

    def mark_lost(self, lease: Lease, reason: str) -> None:
        """Mark ``lease`` as lost, and report the loss."""
