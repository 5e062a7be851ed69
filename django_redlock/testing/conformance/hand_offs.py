"""Cases for a held lock that one client hands to another client."""

from __future__ import annotations

import contextlib

import pytest

from ...errors import LockLost, LockNotHeld, LockNotSupported
from .harness.clients import TEST_TIMEOUT, Client
from .harness.fixtures import Fixtures, NewBackend, NewClient, eventually, needs
from .leases import is_renewed
from .shared_handles import MAKE


class HandOffCases(Fixtures):
    """Cases for hand_off() and adopt()."""

    features = ("hand_off",)

    def test_handed_off(self, client: Client, other: Client, name: str) -> None:
        """After adopt() the new handle holds the lock. The first handle holds nothing. The store has the new owner."""
        lock = client.lock(name, owner="the first")
        lock.acquire()
        text = lock.hand_off()
        assert (lock.token, lock.remaining, lock.lost) == (None, 0, False)
        with pytest.raises(LockNotHeld):
            lock.release()
        assert not client.lock(name).acquire(False)
        adopted = other.adopt_text(text, owner="the second")
        assert adopted.owned()
        assert adopted.fencing_token is None
        held = client.describe(name)
        assert held is not None
        assert held.owner.label == "the second"
        assert not client.lock(name).acquire(False)
        adopted.release()
        assert client.lock(name).acquire(False)

    @needs("fencing")
    def test_handed_off_with_fencing(self, client: Client, other: Client, name: str) -> None:
        """The adopted lock has a larger fencing token than the first holder."""
        lock = client.lock(name, fencing=True)
        lock.acquire()
        number, text = lock.fencing_token, lock.hand_off()
        assert number is not None
        adopted = other.adopt_text(text)
        assert adopted.fencing_token > number
        adopted.release()

    def test_handed_off_renewed(self, new_client: NewClient, name: str) -> None:
        """The handle that adopt() returns renews the lease with the ttl of the first handle."""
        lock, other = new_client().lock(name, ttl=10 * self.short), new_client()

        def renewed_after() -> bool:
            assert lock.acquire(timeout=TEST_TIMEOUT)
            with contextlib.suppress(LockLost):  # on a busy machine the lease may end before
                adopted = other.adopt_text(lock.hand_off(60))
                assert adopted.remaining < 10 * self.short
                return is_renewed(adopted)
            return False

        assert eventually(renewed_after)

    def test_handed_off_once(self, client: Client, other: Client, name: str) -> None:
        """A second adopt() of the same text raises LockLost, also after the release. The holder is unaffected."""
        lock = client.lock(name)
        lock.acquire()
        text = lock.hand_off()
        adopted = other.adopt_text(text)
        for user in (client, other):
            with pytest.raises(LockLost, match="adopted before"):
                user.adopt_text(text)
        assert adopted.owned()
        adopted.release()
        with pytest.raises(LockLost):
            client.adopt_text(text)
        assert client.lock(name).acquire(False)

    def test_handed_off_too_late(self, client: Client, other: Client, name: str) -> None:
        """After the end of the lease, adopt() raises LockLost. The next holder is unaffected."""
        lock = client.lock(name)

        def handed_off() -> str:
            assert lock.acquire(timeout=TEST_TIMEOUT)
            with contextlib.suppress(LockLost):  # on a busy machine so short a lease may end before
                return str(lock.hand_off(ttl=self.short))
            return ""

        text = eventually(handed_off)
        assert text
        following = other.lock(name)
        assert following.acquire(timeout=TEST_TIMEOUT)
        with pytest.raises(LockLost):
            client.adopt_text(text)
        assert following.owned()

    def test_handed_off_in_blocks(self, client: Client, other: Client, name: str) -> None:
        """A `with` block that has called hand_off() releases nothing at its end. `with adopt()` releases the lock."""
        with client.lock(name) as lock:
            text = lock.hand_off()
        assert client.lock(name).locked()
        with other.adopt_text(text) as adopted:
            adopted.check()
            assert client.lock(name).locked()
        assert client.lock(name).acquire(False)

    def test_hand_off_of_a_lock_that_is_not_held(self, client: Client, name: str) -> None:
        """hand_off() raises LockNotHeld for a handle that holds nothing, and LockLost after a force release."""
        lock = client.lock(name)
        with pytest.raises(LockNotHeld):
            lock.hand_off()
        lock.acquire()
        assert client.force_release(name)
        with pytest.raises(LockLost):
            lock.hand_off()

    def test_adopt_of_an_invalid_text(self, new_client: NewClient, name: str) -> None:
        """adopt() raises ValueError for a text that is not from hand_off(), or is from another key prefix.

        The error does not contain the text.
        """
        lock = new_client().lock(name)
        lock.acquire()
        text = lock.hand_off()
        for wrong in ("", "order:17", text[:-1], text + "AAAA", "é"):
            with pytest.raises(ValueError, match="hand_off") as caught:
                new_client().adopt_text(wrong)
            assert text[:-1] not in str(caught.value)
        with pytest.raises(ValueError, match="key_prefix"):
            new_client(key_prefix="another").adopt_text(text)
        new_client().adopt_text(text).release()

    @needs("striped")
    def test_stripe_handed_off(self, client: Client, other: Client, name: str) -> None:
        """The handle that adopt() returns holds the same stripe, as a lock with the name of the stripe."""
        with client.striped(name, 2) as lock:
            stripe, text = lock.stripe, lock.hand_off()
        with other.adopt_text(text) as adopted:
            assert adopted.name == f"{{{name}}}#{stripe}"
            assert client.striped(name, 2).acquire(False)
            assert not client.striped(name, 2).acquire(False)

    @needs("multilock")
    def test_multilock_handed_off(self, client: Client, other: Client, name: str) -> None:
        """The handle that adopt() returns holds all names. If one of the names was lost, adopt() raises LockLost."""
        names = [f"{letter}:{name}" for letter in "abc"]
        with client.multilock(names) as lock:
            text = lock.hand_off()
        adopted = other.adopt_text(text)
        assert adopted.owned()
        assert adopted.names == tuple(names)
        text = adopted.hand_off()
        assert client.force_release(names[1])
        with pytest.raises(LockLost):
            client.adopt_text(text)
        assert client.lock(names[1]).acquire(False)

    @needs("rlock", "semaphore", "rwlock")
    def test_hand_off_is_refused_for_other_kinds(self, new_backend: NewBackend, name: str) -> None:
        """hand_off() of a lock that may have several holders raises LockNotSupported. The lock stays held."""
        backend = new_backend()
        for kind in {"rlock", "semaphore", "rwlock"}.difference(self.lacks):
            with MAKE[kind](backend, f"{kind}:{name}") as lock:
                with pytest.raises(LockNotSupported, match="one holder"):
                    lock.hand_off()
                assert lock.owned()
        backend.close()
