"""What a handle holds and what it says of that: the part of a lock that does no I/O."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from ...errors import LockLost, LockNotHeld
from .. import fork
from ..context import calling
from ..contract import Store
from ..events import Event, logger, report
from ..flow.requests import Fault, Flow
from ..keys import Keys
from ..options import LockOptions
from ..owner import Owner
from ..primitives.base import Primitive
from ..renewal import renewal
from ..values import DRIFT, PRECISION, Lease, valid_until
from ..waiting.waiters import AwaitTurn
from .extensions import Extension, in_flight

_new = tuple.__new__  # without the call of a function in between
OWNER_UPDATE_DELAY = 0.25  # seconds after which the store is told of a lease that was handed on, if it is still held

# Guards the leases of all handles, for a few instructions at a time: one for all can be made anew after fork(), when a
# thread of the parent may have been in there. Reentrant, since a signal's handler may use a lock too.
lease_mutex = threading.RLock()


@fork.on_fork
def _begin() -> None:
    global lease_mutex  # noqa: PLW0603  (only between processes)
    lease_mutex = threading.RLock()
    in_flight.clear()  # extensions of the parent's leases


class LeaseState:
    """A lease that is renewed in the background, replaced, lost or given up, by several threads at once."""

    acquired_by: object = None  # the thread or task that has acquired the lease

    def __init__(self, store: Store, primitive: Primitive, name: str, keys: Keys, options: LockOptions) -> None:
        self.name = name
        self.store = store
        self.primitive = primitive
        self.keys = keys
        self.options = options
        self._lease: Lease | None = None
        self._lost = False
        self._loss_emitted = False
        self._blocks: list[tuple[int, bytes]] = []  # thread or task, and token, of `with` blocks that were entered
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── what it says of itself ───────────────────────────────────────────────────────────────

    @property
    def token(self) -> str | None:
        """The secret of this holding, ``None`` when nothing is held."""
        lease = self.current_lease()
        return lease.effective_claim.token.decode() if lease else None

    @property
    def owner(self) -> Owner | None:
        """Who holds through this handle: host, pid, thread or task, since when. ``None`` when nothing is held."""
        lease = self.current_lease()
        return Owner.parse(lease.effective_claim.owner) if lease else None

    @property
    def fencing_token(self) -> int | None:
        """A number that grows with every grant of this name; ``None`` when nothing is held.

        It is the server's clock in µs. With ``fencing=True`` the last one is kept beside the lock, so that it grows
        even when that clock is set back. Store it with what you write, and refuse to write over a larger one
        (Kleppmann, "How to do distributed locking").
        """
        lease = self.current_lease()
        return lease.fencing_token if lease else None

    @property
    def remaining(self) -> float:
        """Seconds of lease left by the monotonic clock, acquisition time and drift taken off; 0: nothing is held."""
        lease = self.current_lease()
        return max(0.0, lease.valid_until - self.store.clock()) if lease and not self._lost else 0.0

    @property
    def lost(self) -> bool:
        """Whether the lease that this handle got last was lost before it was released."""
        lease = self._lease
        if lease is None:
            return self._lost
        if lease.generation != fork.generation:
            return False  # the parent's
        return self._lost or self.store.clock() >= lease.valid_until

    def check(self) -> None:
        """Raise ``LockLost`` if the lease has been lost, ``LockNotHeld`` if there is none. Costs no round trip."""
        if self.lost:
            raise LockLost(self.name)
        self._require_lease()

    def __repr__(self) -> str:
        state = "locked" if self.current_lease() and not self.lost else "unlocked"
        return f"<{state} {type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"

    def __reduce__(self) -> NoReturn:
        """A copy would hold, and release, what this handle holds. What can be handed on is the name."""
        raise TypeError(f"cannot copy or pickle {type(self).__name__!r} object: make another handle of {self.name!r}")

    # ── what happens to it ───────────────────────────────────────────────────────────────────

    def current_lease(self) -> Lease | None:
        lease = self._lease
        return lease if lease is not None and lease.generation == fork.generation else None

    def _require_lease(self) -> Lease:
        lease = self.current_lease()
        if lease is None:
            inherited = "is the parent process's: after fork() the child holds nothing"
            raise LockNotHeld(self.name, inherited if self._lease is not None else None)
        return lease

    def on_granted(self, lease: Lease) -> None:
        taker = calling()
        with lease_mutex:
            self._lease, self._lost, self._loss_emitted, self.acquired_by = lease, False, False, taker
        self._schedule_renewal(lease)

    def end_lease(self, token: bytes | None) -> tuple[Lease, bool]:
        """Hold nothing from here on; what was held, and whether it had been lost. ``token``: only if it is this one."""
        with lease_mutex:
            lease = self._require_lease()
            mine = lease.effective_claim.token
            if token is not None and token != mine:
                raise LockLost(self.name)  # a block on a shared handle leaves what it entered, not what came after
            self._lost = self._lost or self.store.clock() >= lease.valid_until
            self._lease = None
        renewal.cancel(mine)
        return lease, self._lost

    def hand_over_flow(self, token: bytes | None = None) -> Flow[Lease]:
        """Hold nothing from here on: another handle goes on with the lease. Raises ``LockLost``.

        An extension that is under way is waited for: its outcome is for the handle that has sent it.
        """
        while True:
            with lease_mutex:
                extension = in_flight.get(self._require_lease().claim.token)
                if extension is None or not self.remaining:
                    lease, lost = self.end_lease(token)
                    break
                bell = extension.new_wake_event()
            yield AwaitTurn(bell, self.remaining)
        if lost:
            raise LockLost(self.name)
        return lease

    def _begin_extension(self, ttl: float) -> Flow[tuple[Lease, float]]:
        """The lease from here on, when one of ``ttl`` seconds is about to replace it; and that ttl within ``max_hold``.

        Waits for an extension that is under way. With another ttl the lease can't be handed on any more. A shorter ttl
        counts at once, and for renewals: the answer may get lost, and the request come after them.
        """
        while True:
            self.check()
            with lease_mutex:
                lease = self._require_lease()
                if (extension := in_flight.get(lease.claim.token)) is None:
                    ttl = self._within_max_hold(lease, ttl)
                    if ttl != lease.ttl:
                        end = min(lease.valid_until, valid_until(self.store.clock(), ttl))
                        claim = lease.claim._replace(transferable=False)
                        lease = lease._replace(claim=claim, valid_until=end, ttl=min(lease.ttl, ttl))
                        self._lease = lease
                    in_flight[lease.claim.token] = Extension(ttl)
                    return lease, ttl
                bell = extension.new_wake_event()
            yield AwaitTurn(bell, self.remaining)

    def on_extended(self, basis: Lease, outcome: Lease | Fault | None) -> None:
        """What became of the attempt to extend ``basis``."""
        with lease_mutex:
            extension = in_flight.pop(basis.claim.token, None) or Extension(basis.ttl)
            current = self.current_lease()
            if current is None or current.effective_claim.token != basis.effective_claim.token:
                current = None
            elif isinstance(outcome, Lease):
                self._lease = outcome = current.replaced(outcome)
            elif isinstance(outcome, Fault):
                self._lease = current.unsure(extension.ttl)
        extension.set()
        if current is None:
            self._release_again(basis, extension)
        elif isinstance(outcome, Lease):
            self._schedule_renewal(outcome)
        elif isinstance(outcome, Fault):
            left = basis.valid_until - self.store.clock()
            renewal.schedule(
                basis.effective_claim.token, weakref.ref(self), max(0.0, min(left, self._shortest_ttl(basis) / 20))
            )
        else:
            self.mark_lost(basis, "it was released by force, or the store has forgotten it")

    def _release_again(self, lease: Lease, extension: Extension) -> None:
        """Released while it was being extended: whichever ends last frees it again, since it may have been put back."""
        with lease_mutex:
            first, extension.released_meanwhile = not extension.released_meanwhile, True
        if not first:
            kept = self.options.min_hold - (self.store.clock() - lease.since)
            renewal.release_later(self.store, self.primitive, lease.claim, after=max(0.0, kept))

    def mark_lost(self, lease: Lease, reason: str) -> None:
        with lease_mutex:
            if self._lease is None or self._lease.effective_claim.token != lease.effective_claim.token:
                return
            self._lost = True
        # Some nodes may still have it.
        renewal.release_later(self.store, self.primitive, lease.claim)
        # A receiver may take its time, or take locks: it must not hold up the renewal of the others.
        try:
            threading.Thread(
                target=fork.run, args=(self._emit_lost, reason, lease), name="redlock-lost", daemon=True
            ).start()
        except RuntimeError:  # there may be no more threads: then all the same
            self._emit_lost(reason, lease)

    def _at_fork_reinit(self) -> None:
        """Hold nothing from here on, as a `threading.Lock` that `os.register_at_fork` resets in the child.

        In the process that held the lock it is freed, elsewhere it stays its holder's.
        """
        lease = self.current_lease()
        self._lease, self._lost, self._blocks = None, False, []
        if lease is not None:
            renewal.release_later(self.store, self.primitive, lease.claim)

    # ── renewal ──────────────────────────────────────────────────────────────────────────────

    def _schedule_renewal(self, lease: Lease) -> None:
        delay = lease.valid_until - self.store.clock()
        if self._is_renewable(lease):
            delay -= self._shortest_ttl(lease) * 2 / 3
            if lease.new_claim is not None and lease.new_claim.owner != lease.claim.owner:
                delay = min(delay, OWNER_UPDATE_DELAY)
        token = lease.effective_claim.token
        renewal.schedule(token, weakref.ref(self), max(0.0, delay))
        if (now := self._lease) is None or now.effective_claim.token != token:  # released meanwhile, by another thread
            renewal.cancel(token)

    def _shortest_ttl(self, lease: Lease) -> float:
        """The shortest ttl that the lease may have on the server."""
        return min(lease.ttl, lease.least)

    def _is_renewable(self, lease: Lease) -> bool:
        terms = self.options
        if not terms.auto_renew:
            return False
        end = lease.valid_until + lease.ttl * DRIFT + PRECISION
        return terms.max_hold is None or end + PRECISION < lease.since + terms.max_hold

    def _within_max_hold(self, lease: Lease, ttl: float) -> float:
        if self.options.max_hold is None:
            return ttl
        return max(PRECISION, min(ttl, lease.since + self.options.max_hold - self.store.clock()))

    def begin_renewal(self) -> tuple[Lease, float] | None:
        """The lease to renew and its new ttl, or ``None`` when there is nothing (more) to renew."""
        lease = self.current_lease()
        if lease is None or self._lost:
            return None
        if self.store.clock() >= lease.valid_until:
            self.mark_lost(lease, "the lease ran out")
            return None
        if not self._is_renewable(lease):
            self._schedule_renewal(lease)
            return None
        with lease_mutex:
            if self._lease is not lease:
                return None
            if lease.claim.token in in_flight:  # look again soon: that may fail
                renewal.schedule(lease.effective_claim.token, weakref.ref(self), self._shortest_ttl(lease) / 20)
                return None
            ttl = self._within_max_hold(lease, lease.ttl)
            in_flight[lease.claim.token] = Extension(ttl)
        return lease, ttl

    # ── telling ──────────────────────────────────────────────────────────────────────────────

    def _emit(
        self, kind: Any, owner: bytes = b"", waited: float = 0.0, held: float = 0.0, reason: str = "", holder: str = ""
    ) -> None:
        store = self.store
        if store.hook is not None:
            holder = holder or owner.decode(errors="replace")
            name, alias, primitive = self.name, store.alias, self.primitive.kind
            report(store.hook, _new(Event, (kind, self, name, alias, waited, held, reason, holder, primitive)))

    def _emit_lost(self, reason: str, lease: Lease) -> None:
        """Say once that the lease was lost: to the log, the hook, and ``on_lost``."""
        with lease_mutex:
            told, self._loss_emitted = self._loss_emitted, True
        if told:
            return
        logger.warning("lock %r was lost: %s", self.name, reason)
        self._emit("lost", lease.effective_claim.owner, held=self.store.clock() - lease.since, reason=reason)
        callback = self.options.on_lost
        if not callable(callback):
            return
        try:
            self._call_on_lost(callback)
        except Exception:
            logger.exception("on_lost of lock %r failed", self.name)

    def _call_on_lost(self, callback: Callable[..., Any]) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            callback(self)
        else:
            loop.call_soon_threadsafe(callback, self)
