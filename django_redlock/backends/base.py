"""The base class of all backends: ``lock()``, and a method for each other kind of lock.

For a store of your own, subclass `django_redlock.backends.storage.StorageBackend`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from secrets import token_hex
from typing import Any, Never, TypeVar, Unpack

from ..core.election.callbacks import Callback
from ..core.election.leader import Leader
from ..core.flow.drivers import adrive, drive
from ..core.keys import Keys, stripe_keys
from ..core.locks.hand_off import HandedOff, adopt_flow
from ..core.locks.lock import Lock
from ..core.locks.multilock import MultiLock
from ..core.locks.rlock import RLock, RWLock, RWLockSide
from ..core.locks.semaphore import Semaphore, Striped, check_stripes
from ..core.options import CommonOptions, LockOptions, OnLost, check_options, parse_on_lost
from ..core.primitives.base import ARRIVAL_ORDER, MUTEX, RLOCK, Primitive, semaphore_primitive
from ..core.primitives.fair import READ, WRITE
from ..core.primitives.multi import MAX_LOCKS, MULTILOCK, STRIPED
from ..core.process.caller import check_may_block
from ..core.values import Seconds, check_lease, seconds
from ..errors import LockNotSupported
from .lock_store import LockStore, wait_limit

L = TypeVar("L")

PROBE_TTL = 5.0  # seconds after which a probe that was not released expires


class Backend(LockStore):
    """A store of locks.

    Times are seconds or a ``timedelta``.

    - ``location``: where the store is; each backend has its own format.
    - ``key_prefix`` ("redlock"): the beginning of all keys. On Redis also a function that returns the prefix and is
      called for each lock, for example for tenants; a function disables the history.
    - ``ttl`` (30, or ``max_ttl`` if that is less): the default lease of a lock.
    - ``max_ttl`` (300): the longest ttl that a lock may have.
    - ``auto_renew`` (``True``): whether a held lock is renewed when a third of its ttl has passed.
    - ``blocking_timeout`` (``None``): how long ``with`` waits; ``None`` means no limit.
    - ``history`` (200): how many lock names are counted separately in each minute of the last hour, on Redis only; 0 or
      ``False``: no history; ``True``: 200.
    - ``clock`` (this machine's): a function that returns monotonic seconds.

    Raises ``TypeError`` for an unknown option, ``ValueError`` for a bad value.
    """

    kinds: Collection[str] = ("mutex",)  # of locks that the backend supports
    mutex: Primitive = MUTEX  # the primitive of `lock`
    has_fencing = True  # whether a lock may have a fencing token
    queue_order = ARRIVAL_ORDER  # of the fair queue of an rwlock
    fair: Primitive | None = None  # the primitive for fair=True
    unfair = "it has no queue in order of arrival"
    periodic: Primitive | None = None  # the primitive for every=
    not_periodic = "the store forgets a lock when its holder dies"
    adopting: Primitive | None = None  # the primitive that acquires what another process has handed off
    not_adopting = "the store has no operation for it"

    def lock(
        self,
        name: str,
        *,
        ttl: Seconds | None = None,
        blocking: bool = True,
        blocking_timeout: Seconds | None = None,
        auto_renew: bool | None = None,
        max_hold: Seconds | None = None,
        min_hold: Seconds | None = None,
        every: Seconds | None = None,
        fair: bool = False,
        fencing: bool = False,
        owner: str | Mapping[str, Any] | None = None,
        on_lost: OnLost = "raise",
        **unknown: Never,
    ) -> Lock:
        """Return a mutex, which is a lock with at most one holder at a time. Times are seconds or a ``timedelta``.

        ::

            with backend.lock("order:17", blocking_timeout=5) as held:
                ...

        - ``ttl`` (the backend's): the lease, which is renewed while the lock is held.
        - ``blocking`` (``True``): whether ``with`` waits for a lock that is held.
        - ``blocking_timeout`` (the backend's): how long ``with`` waits; ``None`` means no limit.
        - ``auto_renew`` (the backend's): whether the lease is renewed.
        - ``max_hold`` (``None``): the longest time to hold the lock; after this time the lock is lost.
        - ``min_hold`` (``None``): the shortest time before another holder can acquire the lock, even after an early
          release.
        - ``every`` (``None``): the lock is granted at most once in this time, even if its holder dies. ``with`` waits
          for the next period only if ``blocking_timeout`` is given.
        - ``fair`` (``False``): waiters with this option get the lock in order of arrival.
        - ``fencing`` (``False``): the lock has a fencing token, a number that grows with every grant.
        - ``owner`` (``None``): a label, or a mapping of fields, shown beside host, pid and thread.
        - ``on_lost`` ("raise"): the effect of a lost lease: "raise" raises ``LockLost`` at the end of ``with``, "warn"
          logs. A plain function is called with the lock at the moment of the loss; ``("raise", function)``: both.

        Raises ``TypeError`` and ``ValueError`` for bad values, and ``LockNotSupported`` for an option that this backend
        does not support.
        """
        if unknown:
            check_options("lock", unknown)
        keys = self.keys_of(name)
        primitive = self._primitive(name, fair, every)
        period = primitive.period
        if fencing and not self.has_fencing:
            raise LockNotSupported(name, f"fencing=True is not supported by {type(self).__name__}")
        if not blocking and blocking_timeout is not None:
            raise ValueError("can't specify a blocking_timeout for a non-blocking lock")
        longest = None if max_hold is None else check_lease(seconds(max_hold, "max_hold"), "max_hold")
        lease = self.ttl if ttl is None else self.check_ttl(ttl)
        options = LockOptions(
            lease if longest is None else min(lease, longest),
            bool(blocking) and not (period and blocking_timeout is None),
            self.blocking_timeout if blocking_timeout is None else wait_limit(blocking_timeout),
            self.auto_renew if auto_renew is None else bool(auto_renew),
            longest,
            max(period, 0.0 if min_hold is None else self.check_ttl(min_hold, "min_hold")),
            bool(fencing),
            owner,
            *parse_on_lost(on_lost),
        )
        text = str.__str__(name)  # of an Enum, which formats itself differently
        return Lock(self, primitive, text, keys, options)

    def _primitive(self, name: str, fair: bool, every: Seconds | None) -> Primitive:
        if fair and self.fair is None:
            raise LockNotSupported(name, f"fair=True is not supported by {type(self).__name__}: {self.unfair}")
        if every is None:
            return self.fair if fair and self.fair else self.mutex
        period = seconds(every, "every")
        if fair or self.periodic is None:
            reason = "it can't be combined with fair=True" if fair else self.not_periodic
            raise LockNotSupported(name, f"every= is not supported: {reason}")
        return self.periodic._replace(period=period, facts=(("every", period),))

    def rlock(self, name: str, **options: Unpack[CommonOptions]) -> RLock:
        """Return a reentrant lock: the thread or asyncio task that holds the lock may acquire it again.

        The lock becomes free after as many releases as acquires. The holder may use several handles.
        Options and errors: `Backend.lock`.
        """
        return self._make_kind(RLock, RLOCK, name, options)

    def semaphore(self, name: str, *, limit: int, **options: Unpack[CommonOptions]) -> Semaphore:
        """Return a lock with up to ``limit`` holders, each with its own lease, like `threading.BoundedSemaphore`.

        All callers must use the same ``limit`` for a name. On N nodes a permit needs ``limit * N // (limit + 1) + 1``
        votes. Options and errors: `Backend.lock`. Also raises ``TypeError`` or ``ValueError`` if ``limit`` is not a
        positive ``int``.
        """
        if isinstance(limit, bool) or not isinstance(limit, int):
            raise TypeError(f"limit must be an int, not {limit!r}")
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        return self._make_kind(Semaphore, semaphore_primitive(limit), name, options)

    def rwlock(self, name: str, **options: Unpack[CommonOptions]) -> RWLock:
        """Return a pair of locks: at any time, ``.read`` has any number of holders or ``.write`` has one holder.

        Each holder has its own lease. New readers queue behind a waiting writer. Options and errors: `Backend.lock`.
        ``.write`` raises ``LockError`` if the caller holds ``.read``.
        """
        read, write = (
            self._make_kind(RWLockSide, side._replace(queue_order=self.queue_order), name, options, fair=True)
            for side in (READ, WRITE)
        )
        return RWLock(read, write)

    def striped(
        self, name: str, stripes: int, *, without: Collection[int] = (), **options: Unpack[CommonOptions]
    ) -> Striped:
        """Return a lock that acquires any free stripe of ``stripes`` in one request.

        Use it for work that is split into parts, for example an inventory in segments. ``.stripe`` is the index of the
        held stripe, from 0. ``switch()`` exchanges the held stripe for another. Handles search from different stripes.
        Callers may use different numbers of stripes for a name.

        - ``stripes``: the number of stripes, from 1 to 256.
        - ``without``: indexes of stripes to exclude, for example segments that are sold out; not all of them.

        Options and errors: `Backend.lock`. Also raises ``TypeError`` or ``ValueError`` for bad stripes.
        """
        check_stripes(stripes)
        if (left_out := frozenset(without)) and left_out.issuperset(range(stripes)):
            raise ValueError(f"without= excludes all {stripes} stripes")
        indexes = tuple(index for index in range(stripes) if index not in left_out) if left_out else ()

        def make(store: Any, primitive: Primitive, text: str, keys: Keys, checked: LockOptions) -> Striped:
            every = stripe_keys(self.encoded_prefix, text, stripes)
            return Striped(store, primitive, text, keys, checked, stripes=every, indexes=indexes)

        return self._make_kind(make, STRIPED, name, options)

    def multilock(self, names: Iterable[str], **options: Unpack[CommonOptions]) -> MultiLock:
        """Return a lock that acquires all of the locks ``names`` or none. Order and duplicates make no difference.

        A multilock and ``lock(name)`` exclude each other for each of the names. Options and errors: `Backend.lock`.
        Also raises ``TypeError`` for a single ``str``, and ``ValueError`` unless there are 1 to 256 names.
        """
        if isinstance(names, str | bytes):
            raise TypeError(f"names must be a list of names, not {names!r}")
        wanted = list(names)
        places = {name: self.keys_of(name) for name in wanted}
        if not 1 <= len(places) <= MAX_LOCKS:
            raise ValueError(f"a multilock must have 1 to {MAX_LOCKS} names, not {len(places)}")
        made = self._make_kind(MultiLock, MULTILOCK, wanted[0], options)
        made.names = tuple(sorted(map(str.__str__, places)))
        made.name = " + ".join(made.names)
        made.all_keys = [places[name] for name in made.names]
        return made

    def leader(
        self,
        name: str,
        on_elected: Callback | None = None,
        on_lost: Callback | None = None,
        *,
        ttl: Seconds | None = None,
        stop_before: Seconds | None = None,
        owner: str | Mapping[str, Any] | None = None,
    ) -> Leader:
        """Return a candidate in an election, as a context manager for threads and for asyncio.

        The candidate that holds the lock ``name`` is the leader.

        - ``on_elected``: called with the leader, in a separate thread or task, when the candidate is elected. If it
          raises, the term ends.
        - ``on_lost``: called with the leader when the term ends. It must stop the work before another candidate leads.
        - ``ttl`` (the backend's): the lease in seconds. If the leader is killed, another candidate leads after this
          time.
        - ``stop_before`` (a third of the lease): if the lease can't be renewed, the term ends this number of seconds
          before the lease does; at most half of the ttl.
        - ``owner``: as in `Backend.lock`.

        Raises ``TypeError`` and ``ValueError`` for bad values.
        """
        made = self.lock(name, ttl=ttl, auto_renew=True, owner=owner, fencing=self.has_fencing)
        return Leader(made, on_elected, on_lost, stop_before)

    def adopt(self, text: str, **options: Any) -> Lock:
        """Take over a lock that another process has handed off, and return a handle that holds the lock.

        The handle renews the lease. ``with backend.adopt(text) as held:`` releases the lock at the end. The fencing
        token is larger than the previous holder's.

        - ``text``: the result of ``hand_off()`` in the other process.
        - options: those of `Backend.lock`; ``ttl`` and ``fencing`` are the previous holder's unless given.

        Raises ``LockLost`` if the text was used before or its lease has ended, ``ValueError`` for any other text and
        for a lock with another key prefix, ``LockUnavailable`` when the store is unavailable, ``LockNotSupported`` if
        this backend can't adopt locks or the options contain ``every``.
        """
        handle, handed = self._adoption(text, options)
        check_may_block(f"lock {handle.name!r}: adopt()", "aadopt()")
        drive(adopt_flow(handle, handed), handle.store.perform)
        return handle

    async def aadopt(self, text: str, **options: Any) -> Lock:
        """`adopt` for asyncio.

        Use: ``async with await backend.aadopt(text) as held:``.
        """
        handle, handed = self._adoption(text, options)
        await adrive(adopt_flow(handle, handed), handle.store.aperform)
        return handle

    def _adoption(self, text: str, options: dict[str, Any]) -> tuple[Lock, HandedOff]:
        handed = HandedOff.parse(text)
        name = handed.names[0]
        if self.adopting is None:
            raise LockNotSupported(name, f"{type(self).__name__} can't adopt a lock: {self.not_adopting}")
        if handed.key_prefix != self.key_prefix:
            raise ValueError(
                f"the text is for key_prefix {handed.key_prefix!r}, and this backend has {self.key_prefix!r}"
            )
        if options.get("every") is not None:
            raise LockNotSupported(name, "a lock with every= can't be handed off")
        options = {"ttl": handed.ttl, "fencing": handed.fencing_token is not None, **options}
        return self.multilock(handed.names, **options) if handed.is_multilock else self.lock(name, **options), handed

    def new_probe(self) -> Lock:
        """Return a lock with a random name and without events, for `health`."""
        return self.lock(f"redlock_check:{token_hex(8)}", ttl=min(PROBE_TTL, self.max_ttl), owner="redlock_check")

    def _make_kind(
        self, make: Callable[..., L], primitive: Primitive, name: str, options: CommonOptions, *, fair: bool = False
    ) -> L:
        """Return a handle for another kind of lock than the mutex. `lock` checks the options.

        ``make``: the class of the handle, or a function that gets the arguments of `Lock`. ``fair``: whether the kind
        has a fair queue of its own, and therefore allows the option ``fair=True``.
        """
        check_options(primitive.kind, options)
        if primitive.kind not in self.kinds:
            raise LockNotSupported(name, f"{type(self).__name__} has no {primitive.kind}")
        if options.get("fair") and not fair:
            raise LockNotSupported(name, f"fair=True is for lock(), not for a {primitive.kind}")
        if options.get("every") is not None:
            raise LockNotSupported(name, f"every= is for lock(), not for a {primitive.kind}")
        made = self.lock(name, **options)
        return make(made.store, primitive, made.name, made.keys, made.options)
