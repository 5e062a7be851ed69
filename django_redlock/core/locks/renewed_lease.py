"""Extends and ends the lease of a handle: schedules the renewal, and processes the outcome of each extension."""

from __future__ import annotations

import weakref
from functools import partial
from typing import NamedTuple

from ...errors import LockLost
from ..contract import Extension
from ..flow.requests import Fault, Flow
from ..process import fork
from ..process.caller import calling, running_loop
from ..process.mutex import state_mutex
from ..renewal.registry import renewal
from ..values import DRIFT, PRECISION, Lease
from ..waiting.waiters import AwaitTurn
from .lease_state import LeaseState
from .with_blocks import LOST_TOKEN, WithBlocks

_RETRIES = 20  # attempts to extend within one ttl, when an attempt fails or another extension is in flight
RAN_OUT = "the lease ran out"
FORCED_OR_FORGOTTEN = "it was released by force, or the store has forgotten it"


class EndedLease(NamedTuple):
    """A lease that a handle has stopped holding.

    ``lost``: the lease had expired or was lost before the handle stopped holding it. ``extension``: the extension that
    was in flight at that time; ``None`` if there was none.
    """

    lease: Lease
    lost: bool
    extension: Extension | None


class RenewedLease(LeaseState):
    """The lease of a handle, its end, and its extensions by the renewal thread and by ``extend()``, one at a time."""

    def on_granted(self, lease: Lease) -> None:
        """Start to hold ``lease``, and schedule its renewal."""
        acquired_by, loop = calling(), running_loop()
        replaced = self.current_lease()
        if replaced is not None:  # another thread or task has lost it, and perhaps not noticed
            if not self._lost:
                self.mark_lost(replaced, FORCED_OR_FORGOTTEN if replaced.valid_until > self.store.clock() else RAN_OUT)
            self._blocks.replace(replaced.claim.token, LOST_TOKEN)
        with state_mutex:
            self._lease, self._extension, self._lost = lease, None, False
            self._generation = fork.generation  # after the lease: see `current_lease`
            self.acquired_by, self._loop = acquired_by, loop
        self._schedule_renewal(lease)

    # ── the end of the lease ─────────────────────────────────────────────────────────────────

    def end_lease(self, token: bytes | None = None) -> EndedLease:
        """Stop holding the lease, and return the lease. Sends no request.

        Raises ``LockNotHeld`` when this handle holds nothing. Raises ``LockLost`` when ``token`` is not ``None`` and
        the lease has a different token, because a ``with`` block on a shared handle releases only its own acquisition.
        """
        with state_mutex:
            lease = self._require_lease()
            current_token = lease.claim.token
            if token is not None and token != current_token:
                raise LockLost(self.name)
            self._lost = self._lost or self.store.clock() >= lease.valid_until
            ended = EndedLease(self._lease_to_release(lease), self._lost, self._extension)
            if ended.extension is not None:
                ended.extension.lease = ended.lease  # released once more when the extension has ended
            self._lease = self._extension = None
        renewal.cancel(current_token)
        return ended

    def _lease_to_release(self, lease: Lease) -> Lease:
        """Return ``lease`` with the claim to release. A subclass can replace its payload, which the scripts read."""
        return lease

    def _kept_until(self, lease: Lease) -> float:
        """Return the time until which the lock stays taken after a release: ``min_hold`` seconds after the grant.

        The time is monotonic seconds by the store's clock.
        """
        return lease.since + self.options.min_hold

    def _at_fork_reinit(self) -> None:
        """Stop holding the lease. The standard library calls this method of a lock in the child of a fork.

        A child releases nothing. In the process that holds the lease, the lease is released in the background.
        """
        lease = self.current_lease()
        self._lease, self._extension, self._lost, self._blocks = None, None, False, WithBlocks()
        if lease is not None:
            renewal.release_later(self.store, self.primitive, lease.claim)

    def mark_lost(self, lease: Lease, reason: str) -> None:
        """Mark ``lease`` as lost and report the loss in a background thread, unless the handle has released it.

        ``reason``: a text for people.
        """
        with state_mutex:
            if not self._holds(lease):
                return
            self._lost = True
        # Release the lock in the background, because some nodes may still have the token.
        renewal.release_later(self.store, self.primitive, lease.claim, keep_until=self._kept_until(lease))
        # In the background: listeners may be slow or acquire locks, and must not delay the renewal of other locks.
        renewal.report(partial(self._emit_lost, reason, lease))

    def hand_over_flow(self, token: bytes | None = None) -> Flow[Lease]:
        """Stop holding the lease, and return the lease for another handle.

        Waits for an extension that is in flight, because only the handle that has sent the extension can process the
        outcome. Raises ``LockLost`` when the lease is lost, or has another token than ``token`` (``None``: any token),
        and ``LockNotHeld`` when this handle holds nothing.
        """
        while True:
            with state_mutex:
                self._require_lease()
                if self._extension is None or not self.remaining:
                    ended = self.end_lease(token)
                    break
                outcome_known = self._extension.new_wake_event()
            yield AwaitTurn(outcome_known, self.remaining)
        if ended.lost:
            raise LockLost(self.name)
        return ended.lease

    # ── one extension ────────────────────────────────────────────────────────────────────────

    def begin_extension_flow(self, ttl: float) -> Flow[Extension]:
        """Begin an extension to ``ttl`` seconds, or as much as ``max_hold`` allows, and return it.

        The caller sends the request. Waits for an extension that is in flight already. If ``ttl`` is shorter than the
        ttl of the lease, the handle shortens its lease at once, and renews with the shorter ttl: the server may run the
        request although its reply is lost. Raises ``LockLost`` when the lease is lost, and ``LockNotHeld`` when this
        handle holds nothing.
        """
        while True:
            self.check()
            with state_mutex:
                lease = self._require_lease()
                if self._extension is None:
                    ttl = self._within_max_hold(lease, ttl)
                    if ttl < lease.ttl:
                        self._lease = lease = lease.shortened(self.store.clock(), ttl)
                    self._extension = Extension(lease, ttl)
                    return self._extension
                outcome_known = self._extension.new_wake_event()
            yield AwaitTurn(outcome_known, self.remaining)

    def begin_renewal(self) -> Extension | None:
        """Begin the extension that is due, and return it. The caller sends the request.

        Returns ``None`` if the lease must not be extended now.
        """
        lease = self.current_lease()
        if lease is None or self._lost:
            return None
        if self.store.clock() >= lease.valid_until:
            self.mark_lost(lease, RAN_OUT)
            return None
        if not self._is_renewable(lease):
            self._schedule_renewal(lease)
            return None
        with state_mutex:
            if self._lease is not lease:
                return None
            if self._extension is None:
                self._extension = Extension(lease, self._within_max_hold(lease, lease.ttl))
                return self._extension
        self._schedule(lease, lease.shortest_ttl / _RETRIES)  # extend() is in flight, and may fail
        return None

    def on_extended(self, extension: Extension, outcome: Lease | Fault | None) -> None:
        """Update the lease after ``extension``.

        ``outcome``: the extended lease, ``None`` when the lease is lost, or a `Fault` when the outcome is unknown.
        """
        with state_mutex:
            held = self._lease if self._extension is extension else None
            if held is not None:
                self._extension = None
                if isinstance(outcome, Lease):
                    self._lease = held = held.replaced(outcome)
                elif isinstance(outcome, Fault):
                    self._lease = held = held.unsure(extension.ttl)
        extension.finish()
        if held is None:
            self._release_after_both(extension)
        elif isinstance(outcome, Lease):
            self._schedule_renewal(held)
        elif isinstance(outcome, Fault):
            self._schedule(held, min(held.valid_until - self.store.clock(), held.shortest_ttl / _RETRIES))
        else:
            self.mark_lost(held, FORCED_OR_FORGOTTEN)

    def _release_after_both(self, extension: Extension) -> None:
        """Release the lease once more, after an extension that was in flight during a release.

        Called twice, when the extension has ended and when the release has ended, in any order. The first call does
        nothing. The second call releases the lease again, because the extension may have restored the lock on a server
        that had lost it.
        """
        with state_mutex:
            is_last, extension.release_ended = extension.release_ended, True
        if is_last:
            lease = extension.lease
            min_hold_left = self.options.min_hold - (self.store.clock() - lease.since)
            renewal.release_later(self.store, self.primitive, lease.claim, after=max(0.0, min_hold_left))

    # ── when to renew ────────────────────────────────────────────────────────────────────────

    def _schedule_renewal(self, lease: Lease) -> None:
        """Schedule the renewal for when a third of the ttl has passed.

        A lease that is not renewed is marked as lost at its end.
        """
        delay = lease.valid_until - self.store.clock()
        if self._is_renewable(lease):
            delay -= lease.shortest_ttl * 2 / 3
        self._schedule(lease, delay)

    def _schedule(self, lease: Lease, delay: float) -> None:
        token = lease.claim.token
        renewal.schedule(token, weakref.ref(self), max(0.0, delay))
        if not self._holds(lease):  # released by another thread meanwhile
            renewal.cancel(token)

    def _is_renewable(self, lease: Lease) -> bool:
        options = self.options
        if options.max_hold is None or not options.auto_renew:
            return options.auto_renew
        end = lease.valid_until + lease.ttl * DRIFT + PRECISION
        return end + PRECISION < lease.since + options.max_hold

    def _within_max_hold(self, lease: Lease, ttl: float) -> float:
        if self.options.max_hold is None:
            return ttl
        return max(PRECISION, min(ttl, lease.since + self.options.max_hold - self.store.clock()))
