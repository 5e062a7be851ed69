"""Chooses where the answers to requests with idempotency keys are kept, by the kind of the lock backend."""

from __future__ import annotations

from ..backends.base import Backend
from ..backends.dummy import DummyBackend
from ..backends.locmem import LocMemBackend
from ..core.algorithms.cluster import Cluster
from ..core.algorithms.single_node import SingleNode
from ..core.options import LockOptions
from ..errors import LockNotSupported
from .entries import Entry
from .memory_lock import MemoryRequestLock
from .request_lock import RequestLock


def request_lock(backend: Backend, entry: Entry, ttl: float | None) -> RequestLock | MemoryRequestLock:
    """Return the lock handle for one request. ``ttl``: seconds of its lease; ``None`` for the backend's default.

    Raises ``LockNotSupported`` unless ``backend`` is a ``RedisBackend``, a ``LocMemBackend`` or a ``DummyBackend``,
    because other backends can't change the lock and the record of the answer in one atomic step.
    """
    options = LockOptions(backend.ttl if ttl is None else backend.check_ttl(ttl), owner=entry.label, on_lost="warn")
    if type(backend.algorithm) in (SingleNode, Cluster):
        return RequestLock(backend, backend.encoded_prefix, entry, options)
    if isinstance(backend, LocMemBackend | DummyBackend):
        return MemoryRequestLock(backend, entry, options)
    raise LockNotSupported(
        entry.name,
        f"idempotent() keeps answers in one Redis (RedisBackend), not in {type(backend).__name__}; "
        "with database= it can use any backend",
    )
