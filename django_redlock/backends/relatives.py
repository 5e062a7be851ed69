"""The relatives of a backend's ``lock()``: the same members and options, another idea of who may hold it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ..core.lock import Lock
from ..core.primitives import RLOCK, SEMAPHORE, Primitive
from ..core.rlock import RLock
from ..errors import LockNotSupported

L = TypeVar("L", bound=Lock)


class Relatives:
    """What makes them. ``kinds``: those that this backend can keep."""

    kinds: Collection[str] = ("mutex",)

    lock: Callable[..., Lock]

    def rlock(self, name: str, **options: Any) -> RLock:
        """A reentrant lock: the thread or asyncio task that holds it may take it again, through any handle.

        It is free when it has been released as often. Options and errors: `Backend.lock`.
        """
        return self._related(RLock, RLOCK, name, options)

    def semaphore(self, name: str, *, limit: int, **options: Any) -> Lock:
        """A lock that up to ``limit`` may hold at once, each with a lease of its own.

        All who use the name give the same ``limit``. On N nodes a permit needs ``limit * N // (limit + 1) + 1`` votes.
        Options and errors: `Backend.lock`; ``TypeError`` and ``ValueError`` for a limit that is no positive ``int``.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit is an int, not {limit!r}")
        if limit < 1:
            raise ValueError(f"limit is 1 at least, not {limit}")
        return self._related(Lock, SEMAPHORE._replace(limit=limit), name, options)

    def _related(self, handle: type[L], primitive: Primitive, name: str, options: dict[str, Any]) -> L:
        if primitive.kind not in self.kinds:
            raise LockNotSupported(name, f"{type(self).__name__} has no {primitive.kind}")
        made = self.lock(name, **options)
        return handle(made._store, primitive, name, made._keys, made._terms)
