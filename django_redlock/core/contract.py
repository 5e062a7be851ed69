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
from .waiting.pending_extension import Extension


class Algorithm(Protocol):
    """Decides whether a lease is granted: by one node, by a majority of nodes, or by a primary with its replicas.

    Every method is a flow: a generator that yields requests and returns the result.
    """

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]: ...

    def extend(self, primitive: Primitive, lease: Lease, ttl: float) -> Flow[Lease | None]: ...

    def extend_many(
        self, primitive: Primitive, leases: Sequence[tuple[Lease, float]]
    ) -> Flow[Sequence[Lease | Fault | None]]: ...

    def release(self, primitive: Primitive, claim: Claim, keep: float = 0.0) -> Flow[bool]: ...

    def cancel(self, primitive: Primitive, claim: Claim) -> Flow[bool]: ...

    def describe(self, name: str, keys: Keys, with_waiters: bool = False) -> Flow[LockInfo | None]: ...


class Gate(Protocol):
    """A local queue: threads or tasks of one process pass it before they use the algorithm of the store."""

    def acquire(self, primitive: Primitive, claim: Claim, deadline: float) -> Flow[Lease | Refusal]: ...

    def release(self, primitive: Primitive, lease: Lease, keep: float) -> Flow[bool]: ...


class Store(Protocol):
    """A lock store: its algorithm, its clock, and the I/O for flows. No lease is longer than ``max_ttl`` seconds.

    ``perform`` performs one request of a flow and blocks, ``aperform`` does the same for asyncio.
    """

    alias: str
    max_ttl: float
    clock: Callable[[], float]
    hook: Hook | None
    key_prefix: str
    adopting: Primitive | None  # acquires what another process has handed off; None: not supported
    not_adopting: str  # the reason

    @property
    def algorithm(self) -> Algorithm: ...

    def check_ttl(self, ttl: Seconds) -> float: ...

    def server_of(self, keys: Keys) -> str: ...

    def local_queue_for(self, primitive: Primitive) -> Gate | None: ...

    def perform(self, request: Any) -> Any: ...

    def aperform(self, request: Any) -> Awaitable[Any]: ...


class Renewable(Protocol):
    """The part of a handle that the renewal uses."""

    name: str

    @property
    def store(self) -> Store: ...

    @property
    def primitive(self) -> Primitive: ...

    @property
    def remaining(self) -> float: ...

    def current_lease(self) -> Lease | None: ...

    def begin_renewal(self) -> Extension | None: ...

    def on_extended(self, extension: Extension, outcome: Lease | Fault | None) -> None: ...

    def mark_lost(self, lease: Lease, reason: str) -> None: ...
