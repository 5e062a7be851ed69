"""The state of one handle: its lease, whether the lease is lost, and the events about the lease. Does no I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from ...errors import LockLost, LockNotHeld
from ..contract import Extension, Store
from ..events import Event, logger, report
from ..keys import Keys
from ..options import LockOptions
from ..owner import Owner
from ..primitives.base import Primitive
from ..process import fork
from ..process.mutex import state_mutex
from ..values import Lease
from .with_blocks import WithBlocks


class LeaseState:
    """The lease of one handle. Threads and tasks may share the handle."""

    acquired_by: object = None  # the thread or task that acquired the lease

    def __init__(self, store: Store, primitive: Primitive, name: str, keys: Keys, options: LockOptions) -> None:
        self.name = name
        self.store = store
        self.primitive = primitive
        self.keys = keys
        self.options = options
        self._lease: Lease | None = None
        self._generation = fork.generation  # the value when the lease was granted: a child of fork() holds nothing
        self._lost = False
        self._reported_loss = b""  # the token of the lost lease that was reported last
        self._extension: Extension | None = None  # the extension in flight
        self._blocks = WithBlocks()
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop that calls `on_lost`; None: a background thread

    # ── what users read ──────────────────────────────────────────────────────────────────────

    @property
    def token(self) -> str | None:
        """The token, the secret of this acquisition; ``None`` when this handle holds nothing."""
        lease = self._callers_lease()
        return lease.claim.token.decode() if lease else None

    @property
    def owner(self) -> Owner | None:
        """The owner that describes this holder: host, pid, thread or task, time of ``acquire()``.

        ``None`` when this handle holds nothing.
        """
        lease = self._callers_lease()
        return Owner.parse(lease.claim.owner) if lease else None

    @property
    def fencing_token(self) -> int | None:
        """The fencing token, a number that grows with every grant of this name.

        ``None`` if this handle holds nothing, and without the option ``fencing=True``. The number is the server's clock
        in µs. The store keeps the largest number beside the lock, so that the next number is larger even after the
        clock was set back. Store the number with each write, and refuse writes with a smaller number (Kleppmann, "How
        to do distributed locking").
        """
        lease = self._callers_lease()
        return lease.fencing_token if lease else None

    @property
    def remaining(self) -> float:
        """Seconds until the lease ends, by the monotonic clock; 0 when this handle holds nothing or the lease is lost.

        The duration of the acquisition and the clock drift (1 % of the ttl) are subtracted.
        """
        lease = self._callers_lease()
        return max(0.0, lease.valid_until - self.store.clock()) if lease and not self._lost else 0.0

    @property
    def lost(self) -> bool:
        """True if the last lease of this handle ended before it was released.

        Also true in a ``with`` block whose lease has ended, after another thread or task has acquired the lock through
        this handle.
        """
        is_own = self._generation == fork.generation  # read before the lease, see `current_lease`
        lease = self._lease
        if self._blocks and self._is_replaced():
            return True
        if lease is None:
            return self._lost
        if not is_own:
            return False  # the lease belongs to the parent process
        return self._lost or self.store.clock() >= lease.valid_until

    def check(self) -> None:
        """Raise ``LockLost`` if the lease is lost, ``LockNotHeld`` if this handle holds nothing. Sends no request."""
        if self.lost:
            raise LockLost(self.name)
        self._require_lease()

    def __repr__(self) -> str:
        state = "locked" if self.current_lease() and not self.lost else "unlocked"
        return f"<{state} {type(self).__module__}.{type(self).__qualname__} object name={self.name!r} at {id(self):#x}>"

    def __reduce__(self) -> NoReturn:
        """Raise ``TypeError``: a copied or unpickled handle would release the lease of the original."""
        raise TypeError(f"cannot copy or pickle {type(self).__name__!r} object: make another handle of {self.name!r}")

    # ── the lease ────────────────────────────────────────────────────────────────────────────

    def current_lease(self) -> Lease | None:
        """Return the lease of this handle; ``None`` if there is none, or if the lease belongs to the parent process."""
        # A new lease is set before its generation, which is therefore read first.
        return self._lease if self._generation == fork.generation else None

    def _callers_lease(self) -> Lease | None:
        """Return the current lease; ``None`` in a ``with`` block that has lost its own, see `_is_replaced`."""
        return None if self._blocks and self._is_replaced() else self.current_lease()

    def _is_replaced(self) -> bool:
        """Return whether the caller is in a ``with`` block that has lost its lease, and can't use the current one.

        The current lease belongs to another thread or task that shares this handle, and has acquired the lock since.
        """
        lease = self.current_lease()
        return self._blocks.have_lost(lease.claim.token if lease else b"")

    def _require_lease(self) -> Lease:
        lease = self.current_lease()
        if lease is None:
            inherited = "is held by the parent process: a child of fork() holds nothing"
            raise LockNotHeld(self.name, inherited if self._lease is not None else None)
        return lease

    def _holds(self, lease: Lease) -> bool:
        current = self._lease
        if current is None or current is lease:
            return current is lease
        return current.claim.token == lease.claim.token

    # ── events ───────────────────────────────────────────────────────────────────────────────

    def _emit_lost(self, reason: str, lease: Lease) -> None:
        """Report the loss of a lease to the log, the event hook and ``on_lost``, once for each lease."""
        token = lease.claim.token
        with state_mutex:
            reported, self._reported_loss = self._reported_loss == token, token
        if reported:
            return
        logger.warning("lock %r was lost: %s", self.name, reason)
        self._emit("lost", lease.claim.owner, held=self.store.clock() - lease.since, reason=reason)
        callback = self.options.on_lost
        if not callable(callback):
            return
        try:
            self._call_on_lost(callback)
        except Exception:
            logger.exception("on_lost of lock %r failed", self.name)

    def _is_loss_reported(self) -> bool:
        """Return whether the loss of the current lease was reported, or any loss if the handle holds nothing."""
        lease = self._lease
        return bool(self._reported_loss) if lease is None else lease.claim.token == self._reported_loss

    def _call_on_lost(self, callback: Callable[..., Any]) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            callback(self)
        else:
            loop.call_soon_threadsafe(callback, self)

    def _emit(
        self, kind: Any, owner: bytes = b"", waited: float = 0.0, held: float = 0.0, reason: str = "", holder: str = ""
    ) -> None:
        store = self.store
        if store.hook is not None:
            holder = holder or owner.decode(errors="replace")
            name, alias, primitive = self.name, store.alias, self.primitive.kind
            report(store.hook, Event(kind, self, name, alias, waited, held, reason, holder, primitive))
