"""Threads or tasks that want any of the same stripes queue locally, and one of them waits in Redis."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.keys import stripe_name
from django_redlock.core.locks import local_queue
from django_redlock.errors import LockNotHeld
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import Fixtures, eventually

WAKE = TEST_TIMEOUT  # see `woken_only`


@pytest.mark.usefixtures("woken_only")
class TestStripesQueue(Fixtures):
    """Threads with a blocking client, and tasks with an asyncio client."""

    @pytest.fixture
    def new_backend(self, redis_url):
        return lambda **options: RedisBackend(redis_url, **{"node_timeout": 10, **options})

    @pytest.fixture
    def holders(self, client, name, monkeypatch):
        """The holders of the two stripes, with hand-overs that are not limited in time."""
        monkeypatch.setattr(local_queue, "HAND_OVER_SECONDS", TEST_TIMEOUT)
        handles = [client.striped(name, 2) for _ in range(2)]
        assert all(handle.acquire(False) for handle in handles)
        return handles

    @pytest.fixture
    def wait(self, client, name, spawn):
        """`wait(number, **options)`: so many handles that wait, the first of them in Redis."""
        lanes = client.backend.local_queues._queues

        def make(number, **options):
            handles = []
            for _ in range(number):
                before = sum(1 + len(lane.waiters) for lane in list(lanes.values()))
                handles.append(client.striped(name, 2, **options))
                spawn(handles[-1].acquire, True, TEST_TIMEOUT)
                assert eventually(lambda: sum(1 + len(lane.waiters) for lane in list(lanes.values())) > before)  # noqa: B023
            return handles

        yield make
        assert eventually(lambda: lanes == {})

    @staticmethod
    def has_it(handle):
        return eventually(lambda: handle.token, WAKE)

    def waiters(self, client, name):
        return [held.waiters for index in (0, 1) if (held := client.describe(stripe_name(name, index)))]

    @pytest.mark.parametrize("terms", [{}, {"fencing": True}], ids=str)
    def test_stripe_of_the_next_holder(self, client, other, name, holders, wait, terms):
        """A local waiter gets the released stripe, whichever it is, and holds it in every respect."""
        keeper, *queue = wait(3, **terms)
        assert eventually(lambda: self.waiters(client, name) == [1, 1])
        for holder, handle in zip(holders, queue, strict=True):
            stripe, token = holder.stripe, holder.token
            holder.release()
            assert self.has_it(handle)
            assert handle.stripe == stripe
            assert handle.token != token
            assert handle.owned()
            with pytest.raises(LockNotHeld):
                holder.release()
            assert handle.extend() > 20
        assert not other.striped(name, 2).acquire(False)
        assert keeper.token is None
        for handle in queue:
            handle.release()
        assert self.has_it(keeper)
        keeper.release()
        assert client.held(f"*{name}*") == []

    def test_waiter_that_excludes_a_stripe(self, holders, wait):
        holders.sort(key=lambda handle: handle.stripe)
        picky, next_one = wait(2, without={0})
        holders[0].release()
        holders[0].acquire(False)
        assert holders[0].stripe == 0
        assert (picky.token, next_one.token) == (None, None)
        holders[1].release()
        assert self.has_it(picky)
        picky.release()
        assert self.has_it(next_one)
        assert next_one.stripe == 1
        for handle in (holders[0], next_one):
            handle.release()
