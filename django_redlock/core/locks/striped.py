"""The striped lock: any one of several mutexes, so that as many can be at work at once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection
from math import inf
from typing import TYPE_CHECKING, Any

from ...errors import LockNotAcquired
from ..context import caller
from ..flow.drivers import adrive, drive
from ..flow.requests import Flow
from ..fork import on_fork
from ..keys import Keys, stripe_name
from ..lock_info import LockInfo
from ..primitives.multi import MAX_LOCKS
from ..values import Claim, Lease, Refusal
from .forwarding import forward_members
from .lock import Lock
from .semaphore import Permits

_NO_TOKEN = b""  # in place of a token: what a `with` block has to release when its stripe has been given back

# Each caller tries another stripe first, so that few meet. Of different processes each begins somewhere else.
_first_stripes = itertools.count(random.randrange(MAX_LOCKS))


@on_fork
def _begin() -> None:
    global _first_stripes  # noqa: PLW0603  (only between processes)
    _first_stripes = itertools.count(random.randrange(MAX_LOCKS))


def check_stripes(stripes: int) -> int:
    """The number of stripes. Raises ``TypeError`` and ``ValueError`` for what is no ``int`` from 1 to 256."""
    if isinstance(stripes, bool) or not isinstance(stripes, int):
        raise TypeError(f"stripes is an int, not {stripes!r}")
    if not 1 <= stripes <= MAX_LOCKS:
        raise ValueError(f"stripes is from 1 to {MAX_LOCKS}, not {stripes}")
    return stripes


class Stripe(Lock):
    """Any one of N mutexes, one at a time."""

    def __init__(self, *args: Any, stripes: tuple[Keys, ...] = (), indexes: tuple[int, ...] = ()) -> None:
        super().__init__(*args)
        self._stripes = stripes
        self._indexes = indexes  # of the stripes that are of use; empty: of all
        self._seen: frozenset[int] = frozenset()  # by `switch` since the last acquire
        self._among: dict[int, tuple[int, ...]] = {}  # thread or task -> to which stripes it wants to switch

    @property
    def stripe(self) -> int | None:
        """The index of the stripe that is held, from 0; ``None`` when none is."""
        lease = self.current_lease()
        return self._stripes.index(lease.claim.keys) if lease else None

    def switch(self, without: Collection[int] = ()) -> bool:
        """Give this stripe back and take another one, that was not had since ``acquire()`` and is not in ``without``.

        For a stripe that turns out to be empty. ``False``: there is no other, and this one stays held. Waits as
        ``with`` does; raises ``LockNotAcquired`` when all others remain taken: then nothing is held, and a ``with``
        block that is left has nothing to release. Raises what ``check()``, ``release()`` and ``acquire()`` raise.
        """
        return drive(self._switching(frozenset(without)), self.store.perform)

    async def aswitch(self, without: Collection[int] = ()) -> bool:
        """`switch` for asyncio."""
        return await adrive(self._switching(frozenset(without)), self.store.aperform)

    # ── the flows behind both colours ────────────────────────────────────────────────────────

    def _switching(self, without: frozenset[int]) -> Flow[bool]:
        self.check()
        lease, me = self._require_lease(), caller()
        held, seen = lease.effective_claim.token, self._seen | without | {self._stripes.index(lease.claim.keys)}
        among = tuple(index for index in self._indexes or range(len(self._stripes)) if index not in seen)
        if not among:
            return False
        yield from self.release_flow(held)
        self._among[me], token = among, _NO_TOKEN
        try:
            outcome = yield from self.acquire_flow(self._blocking_seconds())
            token = outcome.effective_claim.token if isinstance(outcome, Lease) else token
        finally:
            del self._among[me]
            self._blocks.replace(held, token)
        if isinstance(outcome, Refusal):
            left = outcome.remaining
            raise LockNotAcquired(
                self.name, "has no other stripe that is free", None if left == inf else left, outcome.holder
            )
        self._seen = seen
        return True

    def _wanted(self) -> tuple[int, ...]:
        return self._among.get(caller(), self._indexes)

    def _places(self, wanted: tuple[int, ...]) -> tuple[Keys, ...]:
        return tuple(self._stripes[index] for index in wanted) if wanted else self._stripes

    def new_claim(self) -> Claim:
        wanted = self._wanted()
        places = self._places(wanted)
        first = next(_first_stripes) % len(places)
        keys, *others = places[first:] + places[:first]
        return (
            super()
            .new_claim()
            ._replace(keys=keys, more_keys=tuple(others), queue_key=(self.name, len(self._stripes), *wanted))
        )

    def on_granted(self, lease: Lease) -> None:
        self._seen = frozenset()
        super().on_granted(lease)

    def release_flow(self, token: bytes | None = None) -> Flow[None]:
        if token != _NO_TOKEN:
            yield from super().release_flow(token)

    def describe_flow(self) -> Flow[LockInfo | None]:
        """The holding of this handle's stripe; else the last that was looked at, unless one of them is free."""
        lease = self.current_lease()
        places = (lease.claim.keys,) if lease else self._places(self._indexes)
        held = None
        for keys in places:
            held = yield from self.store.algorithm.describe(stripe_name(self.name, self._stripes.index(keys)), keys)
            if held is None:
                break
        return held


if TYPE_CHECKING:

    class _Members(Permits, Stripe):
        """What the handle has."""

else:
    _Members = Permits


class Striped(_Members):
    """Any free one of N locks: made by ``backend.striped(name, stripes=N, …)``, it has all members of a lock.

    A stripe is a mutex of its own. That of index 3 has the name ``{stock:17}#3``, by which it is listed and released by
    force. ``locked()`` says whether a call of ``acquire()`` would have to wait. Threads and tasks may share the handle:
    each ``acquire()``, and each ``with`` block, has a stripe of its own.
    """

    _kind = Stripe


forward_members(Striped, Stripe)
