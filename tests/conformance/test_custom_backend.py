"""A custom backend with three methods. The one of the documentation passes the whole suite."""

import os
import threading
import time

import pytest

from django_redlock.backends.storage import StorageBackend
from django_redlock.core.values import Lease, Refusal
from django_redlock.errors import LockNotSupported
from django_redlock.testing.conformance.exclusion import ExclusionCases
from django_redlock.testing.conformance.interruptions import ForkCases, InterruptionCases
from django_redlock.testing.conformance.leases import LeaseCases

SHELF = {}
MUTEX = threading.Lock()
os.register_at_fork(after_in_child=lambda: (SHELF.clear(), MUTEX._at_fork_reinit()))


class ShelfBackend(StorageBackend):
    """Keeps locks in a dict, name -> (token, end). asyncio calls it in threads, as if it did I/O."""

    def acquire_once(self, claim):
        with MUTEX:
            now, (token, end) = self.clock(), self._read(claim.name)
            if end > now and token != claim.token:
                return Refusal(end - now, "somebody, the first, nightly run")
            SHELF[self.key_prefix, claim.name] = claim.token, now + claim.ttl
            return Lease.granted(claim, now, time.monotonic_ns())

    def extend(self, lease, ttl):
        with MUTEX:
            now, (token, end) = self.clock(), self._read(lease.claim.name)
            if token != lease.claim.token or end <= now:
                return None
            SHELF[self.key_prefix, lease.claim.name] = token, now + ttl
            return lease.extended(now, ttl)

    def release(self, claim, keep=0.0):
        with MUTEX:
            now, (token, end) = self.clock(), self._read(claim.name)
            if token != claim.token or end <= now:
                return False
            SHELF[self.key_prefix, claim.name] = (token, now + keep) if keep else (b"", 0)
            return True

    def _read(self, name):
        return SHELF.get((self.key_prefix, name), (b"", 0))


class TestShelf(ExclusionCases, LeaseCases, InterruptionCases, ForkCases):
    """The part of the suite about mutexes."""

    one_process = True

    @pytest.fixture
    def new_backend(self):
        return ShelfBackend

    @pytest.mark.parametrize("ask", ["held", "force_release", "describe", "locked"])
    def test_unsupported_operations(self, client, name, ask):
        """Operations that the store lacks raise LockNotSupported."""
        with pytest.raises(LockNotSupported, match="ShelfBackend"):
            client.lock(name).locked() if ask == "locked" else getattr(client, ask)(name)

    def test_hand_off(self, client, name):
        """hand_off() raises LockNotSupported, and the lock stays held."""
        with client.lock(name) as lock:
            with pytest.raises(LockNotSupported, match="ShelfBackend"):
                lock.hand_off()
            lock.check()
