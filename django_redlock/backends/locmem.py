"""Locks in the memory of one process, with the semantics of the real ones: for tests and development."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..core.held import Held, digest, prefix_of
from ..core.lease import Claim, Lease, Refusal
from ..core.owner import Owner
from .plain import PlainBackend


class Entry(NamedTuple):
    """Who holds a name, and until when by the backend's clock."""

    claim: Claim
    expires: float


class Space:
    """The locks of one LOCATION."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.held: dict[str, Entry] = {}
        self.queues: defaultdict[str, deque[tuple[Claim, Callable[[], Any]]]] = defaultdict(deque)
        self.fence = 0

    def next_in_line(self, name: str) -> Callable[[], Any]:
        """What wakes the first waiter; call it outside the mutex."""
        queue = self.queues.get(name)
        if not queue:
            return _nobody
        wake = queue.popleft()[1]
        if not queue:
            del self.queues[name]
        return wake


def _nobody() -> None:
    pass


_spaces: dict[str, Space] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spaces.clear)


class LocMemBackend(PlainBackend):
    """Locks of one process. Backends with the same ``location`` and ``key_prefix`` share them. Options: `Backend`."""

    blocks = False

    def __init__(self, location: Any = "", **options: Any) -> None:
        super().__init__(location, **options)
        self._where = f"{location}\0{self.key_prefix}"

    @property
    def _space(self) -> Space:
        # In one step: of two threads that come first, both must get the same.
        return _spaces.get(self._where) or _spaces.setdefault(self._where, Space())

    def clear(self) -> None:
        """Forget every lock of this location, as a Redis that was flushed."""
        _spaces.pop(self._where, None)

    def attempt(self, claim: Claim) -> Lease | Refusal:
        space, now = self._space, self.clock()
        with space.mutex:
            entry = space.held.get(claim.name)
            if entry is not None and entry.expires > now and entry.claim.token != claim.token:
                return Refusal(entry.expires - now, entry.claim.owner.decode(errors="replace"))
            space.held[claim.name] = Entry(claim, now + claim.ttl)
            space.fence = max(space.fence + 1, time.time_ns() // 1000)
            return Lease.granted(claim, now, space.fence)

    def prolong(self, lease: Lease, ttl: float) -> Lease | None:
        space, now = self._space, self.clock()
        with space.mutex:
            entry = space.held.get(lease.claim.name)
            if entry is None or entry.claim.token != lease.claim.token or now >= min(entry.expires, lease.valid_until):
                return None
            space.held[lease.claim.name] = Entry(entry.claim, now + ttl)
            return lease.prolonged(now, ttl)

    def free(self, claim: Claim, keep: float = 0.0) -> bool:
        space, now = self._space, self.clock()
        with space.mutex:
            entry = space.held.get(claim.name)
            if entry is None or entry.claim.token != claim.token or entry.expires <= now:
                return False
            if keep > 0:
                space.held[claim.name] = Entry(claim, now + keep)
                return True
            del space.held[claim.name]
            wake = space.next_in_line(claim.name)
        wake()
        return True

    def look(self, name: str) -> Held | None:
        space, now = self._space, self.clock()
        with space.mutex:
            entry = space.held.get(name)
            queue = tuple(Owner.parse(claim.owner) for claim, _ in space.queues.get(name, ()))
        if entry is None or entry.expires <= now:
            return None
        left = None if entry.expires == math.inf else entry.expires - now
        owner = Owner.parse(entry.claim.owner)
        return Held(
            name, "mutex", owner, left, len(queue), (), digest(entry.claim), queue, prefix_of(entry.claim.token)
        )

    def names(self) -> Iterable[str]:
        with self._space.mutex:
            return list(self._space.held)

    def evict(self, name: str, digest_seen: str) -> bool:
        space = self._space
        with space.mutex:
            entry = space.held.get(name)
            if entry is None or entry.expires <= self.clock() or digest_seen not in ("", digest(entry.claim)):
                return False
            del space.held[name]
            wake = space.next_in_line(name)
        wake()
        return True

    def subscribe(self, claim: Claim, wake: Callable[[], Any]) -> Callable[[], None]:
        space, ticket = self._space, (claim, wake)

        def cancel() -> None:
            with space.mutex:
                if ticket in (queue := space.queues.get(claim.name, ())):
                    queue.remove(ticket)  # type: ignore[union-attr]
                    return
                # It was woken, and may not be able to use that any more: pass it on if the lock is still free.
                free = claim.name not in space.held
                following = space.next_in_line(claim.name) if free else _nobody
            following()

        with space.mutex:
            if claim.name in space.held:
                space.queues[claim.name].append(ticket)
                return cancel
        wake()
        return cancel
