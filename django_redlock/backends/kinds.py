"""The relatives of a backend's ``lock()``: the same members and options, another idea of who may hold it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from ..core.keys import Keys, stripe_keys
from ..core.locks.lock import Lock
from ..core.locks.multilock import MultiLock
from ..core.locks.read_write import RWLock
from ..core.locks.reentrant import RLock
from ..core.locks.semaphore import Semaphore
from ..core.locks.striped import Striped, check_stripes
from ..core.primitives.base import RLOCK, SEMAPHORE, Primitive
from ..core.primitives.fair import ARRIVAL_ORDER, READ, WRITE
from ..core.primitives.multi import MAX_LOCKS, MULTILOCK, STRIPED
from ..errors import LockNotSupported

L = TypeVar("L")


class LockKinds:
    """What makes them. ``kinds``: those that this backend can keep. ``order``: in which waiters stand in line."""

    kinds: Collection[str] = ("mutex",)
    queue_order = ARRIVAL_ORDER

    lock: Callable[..., Lock]
    keys_of: Callable[[str], Keys]
    encoded_prefix: bytes

    def rlock(self, name: str, **options: Any) -> RLock:
        """A reentrant lock: the thread or asyncio task that holds it may take it again, through any handle.

        It is free when it has been released as often. Options and errors: `Backend.lock`.
        """
        return self._make_kind(RLock, RLOCK, name, options)

    def semaphore(self, name: str, *, limit: int, **options: Any) -> Semaphore:
        """A lock that up to ``limit`` may hold at once, each with a lease of its own, as `threading.BoundedSemaphore`.

        All who use the name give the same ``limit``. On N nodes a permit needs ``limit * N // (limit + 1) + 1`` votes.
        Options and errors: `Backend.lock`; ``TypeError`` and ``ValueError`` for a limit that is no positive ``int``.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit is an int, not {limit!r}")
        if limit < 1:
            raise ValueError(f"limit is 1 at least, not {limit}")
        return self._make_kind(Semaphore, SEMAPHORE._replace(limit=limit), name, options)

    def rwlock(self, name: str, **options: Any) -> RWLock:
        """A pair of locks: many may hold ``.read`` at once, each with a lease of its own, or one holds ``.write``.

        A writer that waits lets no new readers in. Options and errors: `Backend.lock`; ``LockError`` for a reader that
        asks to write.
        """
        read, write = (
            self._make_kind(RLock, side._replace(queue_order=self.queue_order), name, options, fair=True)
            for side in (READ, WRITE)
        )
        return RWLock(read, write)

    def striped(self, name: str, stripes: int, *, without: Collection[int] = (), **options: Any) -> Striped:
        """Any free one of ``stripes`` locks, taken in one request: ``.stripe`` says which, from 0.

        For work that is split into as many parts, such as a stock into segments. Each caller begins to look at another
        stripe. ``without``: indexes of stripes that are of no use, such as those where nothing is left; ``switch()`` of
        the lock goes on to another one. All who use the name may give different numbers. Options and errors:
        `Backend.lock`; ``TypeError`` and ``ValueError`` for ``stripes`` that is no ``int`` from 1 to 256, and when none
        of them is left.
        """
        check_stripes(stripes)
        if (left_out := frozenset(without)) and left_out.issuperset(range(stripes)):
            raise ValueError(f"without leaves none of the {stripes} stripes")
        indexes = tuple(index for index in range(stripes) if index not in left_out) if left_out else ()
        kind = partial(Striped, stripes=stripe_keys(self.encoded_prefix, name, stripes), indexes=indexes)
        return self._make_kind(kind, STRIPED, name, options)

    def multilock(self, names: Iterable[str], **options: Any) -> MultiLock:
        """All of the locks ``names`` or none: the order makes no difference, and a name that is given twice is one.

        Each of them excludes ``lock(name)``. Options and errors: `Backend.lock`; ``TypeError`` for a single ``str``,
        ``ValueError`` unless there are 1 to 256 names.
        """
        if isinstance(names, str | bytes):
            raise TypeError(f"names is a list of names, not {names!r}")
        wanted = list(names)
        places = {name: self.keys_of(name) for name in wanted}
        if not 1 <= len(places) <= MAX_LOCKS:
            raise ValueError(f"a multilock has 1 to {MAX_LOCKS} names, not {len(places)}")
        made = self._make_kind(MultiLock, MULTILOCK, wanted[0], options)
        made.names = tuple(sorted(places))
        made.name = " + ".join(made.names)
        made.all_keys = [places[name] for name in made.names]
        return made

    def _make_kind(
        self, handle: Callable[..., L], primitive: Primitive, name: str, options: dict[str, Any], *, fair: bool = False
    ) -> L:
        if primitive.kind not in self.kinds:
            raise LockNotSupported(name, f"{type(self).__name__} has no {primitive.kind}")
        if options.get("fair") and not fair:
            raise LockNotSupported(name, f"a {primitive.kind} keeps no order of arrival: fair=True is for lock()")
        made = self.lock(name, **options)
        return handle(made.store, primitive, name, made.keys, made.options)
