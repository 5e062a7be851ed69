"""What a handle holds and what it says of that: the part of a lock that does no I/O."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from ..errors import LockLost, LockNotHeld
from . import fork
from .callers import calling
from .events import Event, logger, report
from .extension import Extension, under_way
from .keys import Keys
from .lease import DRIFT, PRECISION, Lease, valid_until
from .owner import Owner
from .primitives import Primitive
from .renewal import renewal
from .requests import Fault, Flow
from .store import Store
from .terms import Terms
from .tickets import Turn

_new = tuple.__new__  # without the call of a function in between
TELL = 0.25  # seconds after which the store is told of a lease that was handed on, if it is still held

# Guards the leases of all handles, for a few instructions at a time: one for all can be made anew after fork(), when a
# thread of the parent may have been in there. Reentrant, since a signal's handler may use a lock too.
_mutex = threading.RLock()


@fork.on_fork
def _begin() -> None:
    global _mutex  # noqa: PLW0603  (only between processes)
    _mutex = threading.RLock()
    under_way.clear()  # extensions of the parent's leases


class Holding:
    """A lease that is renewed in the background, replaced, lost or given up, by several threads at once."""

    _taker: object = None  # the thread or task that has acquired the lease

    def __init__(self, store: Store, primitive: Primitive, name: str, keys: Keys, terms: Terms) -> None:
        self.name = name
        self._store = store
        self._primitive = primitive
        self._keys = keys
        self._terms = terms
        self._lease: Lease | None = None
        self._lost = False
        self._told = False
        self._blocks: list[tuple[int, bytes]] = []  # thread or task, and token, of `with` blocks that were entered
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── what it says of itself ───────────────────────────────────────────────────────────────

    @property
    def token(self) -> str | None:
        """The secret of this holding, ``None`` when nothing is held."""
        lease = self._current()
        return lease.mine.token.decode() if lease else None

    @property
    def owner(self) -> Owner | None:
        """Who holds through this handle: host, pid, thread or task, since when. ``None`` when nothing is held."""
        lease = self._current()
        return Owner.parse(lease.mine.owner) if lease else None

    @property
    def fencing_token(self) -> int | None:
        """A number that grows with every grant of this name; ``None`` when nothing is held.

        It is the server's clock in µs. With ``fencing=True`` the last one is kept beside the lock, so that it grows
        even when that clock is set back. Store it with what you write, and refuse to write over a larger one
        (Kleppmann, "How to do distributed locking").
        """
        lease = self._current()
        return lease.fencing_token if lease else None

    @property
    def remaining(self) -> float:
        """Seconds of lease left by the monotonic clock, acquisition time and drift taken off; 0: nothing is held."""
        lease = self._current()
        return max(0.0, lease.valid_until - self._store.clock()) if lease and not self._lost else 0.0

    @property
    def lost(self) -> bool:
        """Whether the lease that this handle got last was lost before it was released."""
        lease = self._lease
        if lease is None:
            return self._lost
        if lease.generation != fork.generation:
            return False  # the parent's
        return self._lost or self._store.clock() >= lease.valid_until

    def check(self) -> None:
        """Raise ``LockLost`` if the lease has been lost, ``LockNotHeld`` if there is none. Costs no round trip."""
        if self.lost:
            raise LockLost(self.name)
        self._held()

    def __repr__(self) -> str:
        state = "locked" if self._current() and not self.lost else "unlocked"
        return f"<{state} {type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"

    def __reduce__(self) -> NoReturn:
        """A copy would hold, and release, what this handle holds. What can be handed on is the name."""
        raise TypeError(f"cannot copy or pickle {type(self).__name__!r} object: make another handle of {self.name!r}")

    # ── what happens to it ───────────────────────────────────────────────────────────────────

    def _current(self) -> Lease | None:
        lease = self._lease
        return lease if lease is not None and lease.generation == fork.generation else None

    def _held(self) -> Lease:
        lease = self._current()
        if lease is None:
            inherited = "is the parent process's: after fork() the child holds nothing"
            raise LockNotHeld(self.name, inherited if self._lease is not None else None)
        return lease

    def _granted(self, lease: Lease) -> None:
        taker = calling()
        with _mutex:
            self._lease, self._lost, self._told, self._taker = lease, False, False, taker
        self._watch(lease)

    def _give_up(self, token: bytes | None) -> tuple[Lease, bool]:
        """Hold nothing from here on; what was held, and whether it had been lost. ``token``: only if it is this one."""
        with _mutex:
            lease = self._held()
            mine = lease.mine.token
            if token is not None and token != mine:
                raise LockLost(self.name)  # a block on a shared handle leaves what it entered, not what came after
            self._lost = self._lost or self._store.clock() >= lease.valid_until
            self._lease = None
        renewal.forget(mine)
        return lease, self._lost

    def _hand_over(self, token: bytes | None = None) -> Flow[Lease]:
        """Hold nothing from here on: another handle goes on with the lease. Raises ``LockLost``.

        An extension that is under way is waited for: its outcome is for the handle that has sent it.
        """
        while True:
            with _mutex:
                extension = under_way.get(self._held().claim.token)
                if extension is None or not self.remaining:
                    lease, lost = self._give_up(token)
                    break
                bell = extension.bell()
            yield Turn(bell, self.remaining)
        if lost:
            raise LockLost(self.name)
        return lease

    def _before_extending(self, ttl: float) -> Flow[tuple[Lease, float]]:
        """The lease from here on, when one of ``ttl`` seconds is about to replace it; and that ttl within ``max_hold``.

        Waits for an extension that is under way. With another ttl the lease can't be handed on any more. A shorter ttl
        counts at once, and for renewals: the answer may get lost, and the request come after them.
        """
        while True:
            self.check()
            with _mutex:
                lease = self._held()
                if (extension := under_way.get(lease.claim.token)) is None:
                    ttl = self._within_max_hold(lease, ttl)
                    if ttl != lease.ttl:
                        end = min(lease.valid_until, valid_until(self._store.clock(), ttl))
                        claim = lease.claim._replace(steady=False)
                        lease = lease._replace(claim=claim, valid_until=end, ttl=min(lease.ttl, ttl))
                        self._lease = lease
                    under_way[lease.claim.token] = Extension(ttl)
                    return lease, ttl
                bell = extension.bell()
            yield Turn(bell, self.remaining)

    def _replaced(self, basis: Lease, outcome: Lease | Fault | None) -> None:
        """What became of the attempt to extend ``basis``."""
        with _mutex:
            extension = under_way.pop(basis.claim.token, None) or Extension(basis.ttl)
            current = self._current()
            if current is None or current.mine.token != basis.mine.token:
                current = None
            elif isinstance(outcome, Lease):
                self._lease = outcome = current.replaced(outcome)
            elif isinstance(outcome, Fault):
                self._lease = current.unsure(extension.ttl)
        extension.ring()
        if current is None:
            self._cross(basis, extension)
        elif isinstance(outcome, Lease):
            self._watch(outcome)
        elif isinstance(outcome, Fault):
            left = basis.valid_until - self._store.clock()
            renewal.watch(basis.mine.token, weakref.ref(self), max(0.0, min(left, self._pace(basis) / 20)))
        else:
            self._lose(basis, "it was released by force, or the store has forgotten it")

    def _cross(self, lease: Lease, extension: Extension) -> None:
        """Released while it was being extended: whichever ends last frees it again, since it may have been put back."""
        with _mutex:
            first, extension.crossed = not extension.crossed, True
        if not first:
            kept = self._terms.min_hold - (self._store.clock() - lease.since)
            renewal.free(self._store, self._primitive, lease.claim, after=max(0.0, kept))

    def _lose(self, lease: Lease, reason: str) -> None:
        with _mutex:
            if self._lease is None or self._lease.mine.token != lease.mine.token:
                return
            self._lost = True
        # Some nodes may still have it.
        renewal.free(self._store, self._primitive, lease.claim)
        # A receiver may take its time, or take locks: it must not hold up the renewal of the others.
        try:
            threading.Thread(
                target=fork.run, args=(self._tell, reason, lease), name="redlock-lost", daemon=True
            ).start()
        except RuntimeError:  # there may be no more threads: then all the same
            self._tell(reason, lease)

    def _at_fork_reinit(self) -> None:
        """Hold nothing from here on, as a `threading.Lock` that `os.register_at_fork` resets in the child.

        In the process that held the lock it is freed, elsewhere it stays its holder's.
        """
        lease = self._current()
        self._lease, self._lost, self._blocks = None, False, []
        if lease is not None:
            renewal.free(self._store, self._primitive, lease.claim)

    # ── renewal ──────────────────────────────────────────────────────────────────────────────

    def _watch(self, lease: Lease) -> None:
        delay = lease.valid_until - self._store.clock()
        if self._is_renewable(lease):
            delay -= self._pace(lease) * 2 / 3
            if lease.own is not None and lease.own.owner != lease.claim.owner:
                delay = min(delay, TELL)
        token = lease.mine.token
        renewal.watch(token, weakref.ref(self), max(0.0, delay))
        if (now := self._lease) is None or now.mine.token != token:  # released meanwhile, by another thread
            renewal.forget(token)

    def _pace(self, lease: Lease) -> float:
        """The shortest ttl that the lease may have on the server."""
        return min(lease.ttl, lease.least)

    def _is_renewable(self, lease: Lease) -> bool:
        terms = self._terms
        if not terms.auto_renew:
            return False
        end = lease.valid_until + lease.ttl * DRIFT + PRECISION
        return terms.max_hold is None or end + PRECISION < lease.since + terms.max_hold

    def _within_max_hold(self, lease: Lease, ttl: float) -> float:
        if self._terms.max_hold is None:
            return ttl
        return max(PRECISION, min(ttl, lease.since + self._terms.max_hold - self._store.clock()))

    def _renewal_terms(self) -> tuple[Lease, float] | None:
        """The lease to renew and its new ttl, or ``None`` when there is nothing (more) to renew."""
        lease = self._current()
        if lease is None or self._lost:
            return None
        if self._store.clock() >= lease.valid_until:
            self._lose(lease, "the lease ran out")
            return None
        if not self._is_renewable(lease):
            self._watch(lease)
            return None
        with _mutex:
            if self._lease is not lease:
                return None
            if lease.claim.token in under_way:  # look again soon: that may fail
                renewal.watch(lease.mine.token, weakref.ref(self), self._pace(lease) / 20)
                return None
            ttl = self._within_max_hold(lease, lease.ttl)
            under_way[lease.claim.token] = Extension(ttl)
        return lease, ttl

    # ── telling ──────────────────────────────────────────────────────────────────────────────

    def _report(
        self, kind: Any, owner: bytes = b"", waited: float = 0.0, held: float = 0.0, reason: str = "", holder: str = ""
    ) -> None:
        store = self._store
        if store.hook is not None:
            holder = holder or owner.decode(errors="replace")
            name, alias, primitive = self.name, store.alias, self._primitive.kind
            report(store.hook, _new(Event, (kind, self, name, alias, waited, held, reason, holder, primitive)))

    def _tell(self, reason: str, lease: Lease) -> None:
        """Say once that the lease was lost: to the log, the hook, and ``on_lost``."""
        with _mutex:
            told, self._told = self._told, True
        if told:
            return
        logger.warning("lock %r was lost: %s", self.name, reason)
        self._report("lost", lease.mine.owner, held=self._store.clock() - lease.since, reason=reason)
        callback = self._terms.on_lost
        if not callable(callback):
            return
        try:
            self._call(callback)
        except Exception:
            logger.exception("on_lost of lock %r failed", self.name)

    def _call(self, callback: Callable[..., Any]) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            callback(self)
        else:
            loop.call_soon_threadsafe(callback, self)
