"""Cases for the listing and description of locks, and for force release."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from ...core.keys import glob_escape
from ...errors import LockLost
from .exclusion import WAKE
from .harness.clients import TEST_TIMEOUT, Client
from .harness.fixtures import Fixtures, Spawn, eventually, until_someone_waits

PATTERNS = [
    ("*", "abc"),
    ("a*c", "abc"),
    ("a*c", "ac"),
    ("a?c", "abc"),
    ("a[bx]c", "abc"),
    ("a[a-c]c", "abc"),
    ("[^x]bc", "abc"),
]
PATTERNS += [
    (r"a\*c", "a*c"),
    (r"a\?c", "a?c"),
    (r"a\[b]c", "a[b]c"),
    (r"a\\c", "a\\c"),
    ("a[*]c", "a*c"),
    ("{*}", "{abc}"),
]
NO_MATCH = [
    ("a?c", "ac"),
    ("a[x-z]c", "abc"),
    (r"a\*c", "abc"),
    ("b", "abc"),
    ("[^a]bc", "abc"),
    ("A*", "abc"),
    ("[!a]bc", "xbc"),
]


class InspectionCases(Fixtures):
    """Cases for locked, owned, held, describe and force_release."""

    kind = "mutex"  # the kind that the store reports for lock()

    def test_locked_and_owned(self, client: Client, other: Client, name: str) -> None:
        """locked() returns whether any handle holds the lock, owned() whether this handle holds it."""
        first, second = client.lock(name), other.lock(name)
        assert (first.locked(), first.owned(), second.locked(), second.owned()) == (False, False, False, False)
        with first:
            assert (first.locked(), first.owned(), second.locked(), second.owned()) == (True, True, True, False)
        assert (first.locked(), first.owned(), second.locked(), second.owned()) == (False, False, False, False)

    def test_owned_after_the_end(self, client: Client, other: Client, name: str) -> None:
        """A handle whose lease has expired does not own the lock, whether or not there is a new holder."""
        first, second = client.lock(name, ttl=self.short, auto_renew=False), other.lock(name)
        first.acquire()
        assert eventually(lambda: not second.locked())
        assert first.owned() is False
        assert second.acquire(False)
        assert (first.owned(), second.owned()) == (False, True)

    def test_held(self, client: Client, other: Client, name: str) -> None:
        """held() lists a live lock with its kind, its owner and the remaining time, until the lock is released."""
        pattern = glob_escape(name)
        assert other.held(pattern) == []
        with client.lock(name, ttl=20, owner="nightly run") as lock:
            (row,) = other.held(pattern)
            assert (row.name, row.kind, row.waiters) == (name, self.kind, 0)
            assert (row.owner.pid, row.owner.label) == (os.getpid(), "nightly run")
            assert row.remaining is not None
            assert 0 < row.remaining <= 20 == row.ttl
            assert lock.token not in repr(row)
        assert other.held(pattern) == []

    def test_describe(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """describe() returns the holder and the waiters of a held lock, and ``None`` for a free lock."""
        assert other.describe(name) is None
        with client.lock(name, owner="holder"):
            waiting = spawn(other.lock(name, owner="waiter").acquire, True, TEST_TIMEOUT)
            until_someone_waits(client, name)
            row = client.describe(name)
            assert row is not None
            assert (row.name, row.owner.label, row.waiters) == (name, "holder", 1)
            assert [owner.label for owner in row.queue] == ["waiter"]
        assert waiting.result(TEST_TIMEOUT)
        assert eventually(lambda: (row := client.describe(name)) and row.owner.label == "waiter" and row.waiters == 0)

    def test_times_of_a_lease(self, client: Client, other: Client, name: str) -> None:
        """Other clients see ttl, remaining time and start of a lease. extend() changes only the remaining time."""
        before = time.time()
        with client.lock(name, ttl=60, auto_renew=False) as lock:
            (first,) = other.held(glob_escape(name))
            lock.extend(30)
            assert eventually(lambda: (row := other.describe(name)) and (row.remaining or 0) <= 30)
            lock.extend(60)
            assert eventually(lambda: (row := other.describe(name)) and (row.remaining or 0) > 30)
            (renewed,) = other.held(glob_escape(name))
        assert first.ttl == renewed.ttl == pytest.approx(60)
        assert renewed.since == pytest.approx(first.since, abs=10)  # ZooKeeper's includes the time of the request
        assert before - 0.001 <= (first.since or 0) <= time.time()

    @pytest.mark.parametrize(("pattern", "found"), PATTERNS)
    def test_held_pattern(self, client: Client, name: str, pattern: str, found: str) -> None:
        """A pattern is a glob as in Redis. A backslash escapes the next character."""
        with client.lock(f"{name}:{found}"), client.lock(f"{name} unlike"):
            assert [row.name for row in client.held(f"{name}:{pattern}")] == [f"{name}:{found}"]

    @pytest.mark.parametrize(("pattern", "unlike"), NO_MATCH)
    def test_held_pattern_that_does_not_match(self, client: Client, name: str, pattern: str, unlike: str) -> None:
        """Locks whose name does not match the glob are not listed."""
        with client.lock(f"{name}:{unlike}"):
            assert client.held(f"{name}:{pattern}") == []

    @pytest.mark.parametrize(
        "odd", ["*", "?", "[ab]", "[", "]", "\\", "{x}", "a}b", "\n", "é", "🔒", " ", "^", "-", "[^a]"], ids=ascii
    )
    def test_held_lists_special_characters(self, client: Client, name: str, odd: str) -> None:
        """held() lists names with special characters unchanged. An escaped name as the pattern finds only this name."""
        names = {name + odd, name + "x", name + "a"}
        locks = [client.lock(each) for each in names]
        for lock in locks:
            lock.acquire()
        assert [row.name for row in client.held(glob_escape(name + odd))] == [name + odd]
        assert {row.name for row in client.held(name + "*")} == names
        assert client.force_release(name + odd) is True
        assert client.held(glob_escape(name + odd)) == []
        assert {row.name for row in client.held(name + "*")} == names - {name + odd}

    def test_held_limit(self, client: Client, name: str) -> None:
        """held(limit=n) lists at most n locks."""
        locks = [client.lock(f"{name}:{number}") for number in range(5)]
        for lock in locks:
            lock.acquire()
        assert len(client.held(f"{name}:*")) == 5
        for limit in (0, 1, 4, 5, 6):
            assert len(client.held(f"{name}:*", limit)) == min(limit, 5)

    def test_force_release(self, client: Client, other: Client, name: str) -> None:
        """force_release() releases the lock and returns whether it was held.

        The former holder can't release the next lease.
        """
        assert other.force_release(name) is False
        lock, following = client.lock(name), other.lock(name)
        lock.acquire()
        assert other.force_release(name) is True
        assert other.force_release(name) is False
        assert following.acquire(False)
        assert lock.owned() is False
        with pytest.raises(LockLost):
            lock.release()
        following.check()
        assert following.owned()

    def test_force_release_by_digest(self, client: Client, other: Client, name: str) -> None:
        """force_release() with a digest releases the lock only if the digest is that of the current lease."""
        lock = client.lock(name)
        with lock:
            (former,) = other.held(glob_escape(name))
        lock.acquire()
        assert other.force_release(name, former.digest) is False
        assert lock.owned()
        (present,) = other.held(glob_escape(name))
        assert other.force_release(name, present.digest) is True
        assert not lock.owned()

    def test_force_release_wakes(self, client: Client, other: Client, name: str, spawn: Spawn) -> None:
        """A force release wakes a waiter."""
        lock = client.lock(name)
        lock.acquire()
        waiting = spawn(other.lock(name).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, name)
        assert client.force_release(name)
        assert waiting.result(WAKE)

    def test_former_holder_learns_of_a_force_release(self, client: Client, other: Client, name: str) -> None:
        """After a force release, the next renewal marks the former holder's lock as lost, and calls on_lost."""
        told: list[Any] = []
        lock = client.lock(name, ttl=self.renewable, on_lost=told.append)
        lock.acquire()
        assert other.force_release(name)
        following = other.lock(name)
        assert following.acquire(False)
        assert eventually(lambda: told)
        assert lock.lost is True
        with pytest.raises(LockLost):
            lock.check()
        following.check()

    def test_extend_after_force_release(self, client: Client, other: Client, name: str) -> None:
        """After a force release extend() raises LockLost, and the lock stays free."""
        lock = client.lock(name)
        lock.acquire()
        other.force_release(name)
        with pytest.raises(LockLost):
            lock.extend()
        assert lock.lost is True
        assert not lock.locked()

    def test_health(self, client: Client) -> None:
        """health() returns a row for each node, and each row is ok."""
        rows = client.health()
        assert rows
        for row in rows:
            assert row["node"]
            assert row["ok"] is True
            assert row["problems"] == []
