"""Cases for semaphores: locks that a limited number of handles may hold at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ....core.keys import glob_escape
from ....errors import LockError, LockLost, LockNotHeld
from ..exclusion import WAKE, Counter
from ..harness.clients import TEST_TIMEOUT, Client
from ..harness.fixtures import Fixtures, Spawn, eventually, until_someone_waits
from ..leases import holds_renewed, is_renewed


class SemaphoreCases(Fixtures):
    """Cases for semaphore()."""

    features = ("semaphore",)

    @pytest.mark.parametrize("limit", [1, 2, 4])
    def test_permits(self, client: Client, name: str, limit: int) -> None:
        """Up to ``limit`` handles can hold a permit at once. One more handle gets a permit after a release."""
        permits = [client.semaphore(name, limit=limit) for _ in range(limit)]
        late = client.semaphore(name, limit=limit)
        assert all(permit.acquire(False) for permit in permits)
        assert not late.acquire(False)
        assert all(permit.owned() for permit in permits)
        assert not late.owned()
        permits[0].release()
        with pytest.raises(LockNotHeld):
            permits[0].release()
        assert eventually(lambda: late.acquire(False))
        assert not permits[0].acquire(False)

    def test_permits_of_many_threads(self, client: Client, name: str, spawn: Spawn) -> None:
        """With a limit of 2, at most two of many threads hold a permit at once, and every acquire succeeds."""
        counter = Counter()

        def work() -> None:
            for _ in range(3):
                with client.semaphore(name, limit=2, blocking_timeout=TEST_TIMEOUT):
                    counter.visit()

        for each in [spawn(work) for _ in range(6)]:
            each.result(2 * TEST_TIMEOUT)
        assert counter.inside == 0
        assert counter.most <= 2

    def test_permits_wake(self, client: Client, name: str, spawn: Spawn) -> None:
        """All waiters get a permit when permits are released, even if several are released at once."""
        held = [client.semaphore(name, limit=3) for _ in range(3)]
        for permit in held:
            permit.acquire()
        waiting = [spawn(client.semaphore(name, limit=3).acquire, True, TEST_TIMEOUT) for _ in range(3)]
        until_someone_waits(client, name, 3)
        for permit in held:
            permit.release()
        assert all(each.result(WAKE) for each in waiting)

    def test_permit_ends(self, client: Client, name: str) -> None:
        """A permit whose lease expires becomes free. The other permits are unaffected."""
        dying, living = (
            client.semaphore(name, limit=2, ttl=self.short, auto_renew=False),
            client.semaphore(name, limit=2),
        )
        dying.acquire()
        living.acquire()
        assert client.semaphore(name, limit=2).acquire(timeout=TEST_TIMEOUT)
        assert living.owned()
        assert not dying.owned()
        with pytest.raises(LockLost):
            dying.release()

    def test_permits_are_renewed(self, client: Client, name: str) -> None:
        """A held permit is renewed automatically."""
        ttl = self.renewable
        lasting = client.semaphore(name, limit=1, ttl=ttl)
        assert holds_renewed(partial(lasting.acquire, timeout=TEST_TIMEOUT), partial(is_renewed, lasting))
        assert not client.semaphore(name, limit=1).acquire(False)
        assert eventually(lambda: lasting.extend(20) > 10)  # with a renewal in flight, the earlier end counts
        lasting.check()
        lasting.release()

    def test_permits_held(self, client: Client, name: str) -> None:
        """held() lists a semaphore once, with all holders. A force release ends all of their permits."""
        permits = [client.semaphore(name, limit=3, owner=label) for label in ("one", "two")]
        for permit in permits:
            permit.acquire()

        def labels() -> list[str]:
            (row,) = client.held(glob_escape(name))
            assert row.kind == "semaphore"
            return sorted(owner.label for owner in row.holders)

        assert eventually(lambda: labels() == ["one", "two"])
        assert client.force_release(name)
        assert not any(permit.owned() for permit in permits)
        assert client.held(glob_escape(name)) == []

    def test_force_release_of_one_permit(self, client: Client, name: str) -> None:
        """force_release() with the digest of a holder ends only that holder's permit, and another handle can get it."""
        kept, lost = (client.semaphore(name, limit=2, owner=label, on_lost="warn") for label in ("kept", "lost"))
        for permit in (kept, lost):
            permit.acquire()

        def digests() -> dict[str, str]:
            (row,) = client.held(glob_escape(name))
            return dict(zip((owner.label for owner in row.holders), row.digests, strict=True))

        assert eventually(lambda: set(digests()) == {"kept", "lost"})
        digest = digests()["lost"]
        assert client.force_release(name, digest)
        assert not client.force_release(name, digest)
        assert eventually(lambda: set(digests()) == {"kept"})
        assert client.semaphore(name, limit=2, owner="next").acquire(timeout=TEST_TIMEOUT)
        assert eventually(lambda: set(digests()) == {"kept", "next"})
        assert kept.owned()

    def test_permits_and_mutex(self, client: Client, name: str) -> None:
        """A name that is held as a semaphore can't be acquired as a mutex, and the other way round."""
        with client.semaphore(name, limit=2), pytest.raises(LockError):
            client.lock(name).acquire(False)

    @pytest.mark.parametrize(
        ("limit", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
    )
    def test_invalid_limit(self, client: Client, name: str, limit: Any, error: type[Exception]) -> None:
        """A limit that is not a positive int is refused."""
        with pytest.raises(error, match="limit"):
            client.semaphore(name, limit=limit)
