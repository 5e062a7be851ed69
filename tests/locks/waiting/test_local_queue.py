"""Threads or tasks of one process that want the same lock queue locally, and one of them waits in Redis."""

import asyncio
import threading
from concurrent import futures

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.locks import local_queue
from django_redlock.core.locks.local_queue import Waiter
from django_redlock.core.primitives import base
from django_redlock.errors import LockLost, LockNotAcquired, LockNotHeld, LockUnavailable
from django_redlock.testing.conformance.exclusion import Counter
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import Fixtures, eventually, in_child

WAKE = TEST_TIMEOUT  # see `woken_only`
SENT = ("evalsha", "eval", "blpop", "ping")


def acquired_and_released(lock):
    return lock.acquire(timeout=TEST_TIMEOUT) and lock.release() is None


@pytest.mark.usefixtures("woken_only")
class TestLocalQueue(Fixtures):
    """Threads with a blocking client, and tasks with an asyncio client."""

    @pytest.fixture
    def server(self, own_redis):
        return own_redis()

    @pytest.fixture
    def admin(self, server):
        with server.client() as client:
            yield client

    @pytest.fixture
    def new_backend(self, server):
        def make(**options):
            return RedisBackend(server.url, **{"node_timeout": 10, **options})

        return make

    @pytest.fixture(autouse=True)
    def _in_the_end(self, client, new_backend, name, spawn):
        """Release all waiters at the end of a test."""
        yield
        if self.has_ended(client):
            return
        backend = new_backend()
        assert eventually(lambda: self.has_ended(client) or (backend.force_release(name) and False))
        backend.close()

    @staticmethod
    def has_ended(client):
        return client.backend.local_queues._queues == {}

    @pytest.fixture
    def queued(self, client):
        """`queued(number)`: wait until so many are queued in the process of `client`."""

        def wait(number):
            lanes = client.backend.local_queues._queues
            assert eventually(lambda: sum(len(lane.waiters) for lane in list(lanes.values())) == number)

        return wait

    @pytest.fixture
    def kept(self, client, name, spawn, queued):
        """`kept(number, **options)`: a holder, a waiter in Redis, and so many local waiters behind it."""

        def make(number, **options):
            holder = client.lock(name, **options)
            assert holder.acquire()
            handles = [client.lock(name, owner=f"waiter {index}", **options) for index in range(number + 1)]
            waiting = []
            for index, handle in enumerate(handles):
                waiting.append(spawn(handle.acquire, True, TEST_TIMEOUT))
                assert eventually(lambda: client.backend.local_queues._queues)
                queued(index)
            assert eventually(lambda: (held := client.describe(name)) and held.waiters)
            return holder, list(zip(handles, waiting, strict=True))

        return make

    def test_one_waits_in_redis(self, admin, kept, client, name):
        """Of six waiters in one process one is blocked in Redis, and all get the lock in the end."""
        holder, waiters = kept(5)
        assert eventually(lambda: admin.info("clients")["blocked_clients"] == 1)
        assert eventually(lambda: client.describe(name).waiters == 1)
        holder.release()
        for _ in range(6):
            handle = eventually(lambda: next((each for each, _ in waiters if each.token), None))
            handle.release()
        assert all(waiting.result(WAKE) for _, waiting in waiters)
        assert eventually(lambda: self.has_ended(client))

    def test_timed_out_waiters_send_one_request(self, admin, new_backend, name):
        """Waiters whose time is up at the same moment send one request for all of them."""
        backend = new_backend()
        with backend.lock(name):
            pass
        admin.config_resetstat()

        async def wait():
            async with backend.lock(name, owner="the holder"):
                answers = await asyncio.gather(
                    *(backend.lock(name).aacquire(timeout=1.5) for _ in range(100)),
                    *(self.refused(backend.lock(name, blocking_timeout=1.5)) for _ in range(10)),
                )
            await backend.aclose()
            return answers

        answers = asyncio.run(wait())
        backend.close()
        assert answers == [False] * 100 + ["the holder"] * 10
        assert admin.info("commandstats")["cmdstat_evalsha"]["calls"] < 50

    @staticmethod
    async def refused(lock):
        """Return the holder that the error names."""
        with pytest.raises(LockNotAcquired) as caught:
            await lock.__aenter__()
        return caught.value.holder.label

    def test_one_of_the_timed_out_waiters_gets_a_free_lock(self, new_backend, name, spawn):
        """Of waiters whose time is up one gets a lock that has become free, and the others are refused."""
        backend = new_backend()
        with backend.lock(name, ttl=0.5, auto_renew=False, on_lost="warn"):
            waiting = [spawn(backend.lock(name).acquire, True, 0.5 + index / 100) for index in range(8)]
            assert [each.result(TEST_TIMEOUT) for each in waiting].count(True) == 1
        backend.close()

    def test_without_a_cohort(self, admin, new_client, name, spawn):
        """With cohort=0 each waiter waits in Redis."""
        user = new_client(cohort=0)
        with user.lock(name):
            waiting = [spawn(acquired_and_released, user.lock(name)) for _ in range(3)]
            assert eventually(lambda: admin.info("clients")["blocked_clients"] == 3)
        assert all(each.result(TEST_TIMEOUT) for each in waiting)

    @pytest.mark.parametrize("terms", [{}, {"ttl": 20}, {"fencing": True}, {"auto_renew": False}], ids=str)
    def test_lock_of_the_next_holder(self, kept, client, other, name, terms):
        """A lock that was handed over within the process belongs to the next holder in every respect."""
        holder, waiters = kept(2, **terms)
        token = holder.token
        holder.release()
        handle = eventually(lambda: next((each for each, _ in waiters[1:] if each.token), None))
        assert handle.token != token
        assert not other.lock(name).acquire(False)
        with pytest.raises(LockNotHeld):
            holder.release()
        with pytest.raises(LockNotHeld):
            holder.extend()
        assert handle.owned()
        assert not holder.owned()
        assert client.describe(name).owner.label == handle.owner.label
        assert handle.owned()
        assert handle.extend() > terms.get("ttl", 30) * 0.5
        handle.release()
        assert eventually(lambda: any(each.token for each, _ in waiters if each is not handle))

    def test_waiter_with_another_ttl(self, kept, client, name, spawn, queued):
        """A waiter with another ttl gets a lease of its own length, although the holder has shortened its lease."""
        holder, waiters = kept(0)
        longer = client.lock(name, ttl=100)
        waiting = spawn(longer.acquire, True, TEST_TIMEOUT)
        queued(1)
        holder.extend(5)
        holder.release()
        assert waiting.result(WAKE)
        assert 90 < client.describe(name).remaining <= 100
        longer.release()
        assert waiters[0][1].result(WAKE)

    def test_commands_of_a_hand_over(self, admin, client, name, spawn, queued, monkeypatch):
        """A hand-over within a process costs Redis one command."""
        monkeypatch.setattr(local_queue, "HAND_OVER_SECONDS", 60)
        counter = Counter()

        def work():
            with client.lock(name):
                counter.visit()

        with client.lock(name):
            waiting = [spawn(work) for _ in range(12)]
            queued(11)
            before = self.sent(admin)
        for each in waiting:
            each.result(TEST_TIMEOUT)
        assert (counter.visits, counter.most) == (12, 1)
        assert self.sent(admin) - before < 24  # 11 hand-overs, and the wake-up of the leader

    @staticmethod
    def sent(admin):
        stats = admin.info("commandstats")
        return sum(stats[f"cmdstat_{name}"]["calls"] for name in SENT if f"cmdstat_{name}" in stats)

    def test_other_processes_have_their_turn(self, client, other, name, spawn):
        """However many waiters one process has, those of another process get the lock again and again."""
        over, theirs = threading.Event(), []

        def work():
            while not over.is_set():
                with client.lock(name):
                    pass

        busy = [spawn(work) for _ in range(6)]
        for _ in range(10):
            with other.lock(name, blocking_timeout=TEST_TIMEOUT) as lock:
                theirs.append(lock.token)
        over.set()
        for each in busy:
            each.result(TEST_TIMEOUT)
        assert len(set(theirs)) == 10

    def test_waiter_in_redis_follows_a_cohort(self, new_client, name, spawn, monkeypatch):
        """After a cohort of hand-overs in a row the waiter in Redis gets the lock."""
        monkeypatch.setattr(local_queue, "HAND_OVER_SECONDS", 60)
        user, order = new_client(cohort=2), []
        lanes, holder = user.backend.local_queues._queues, user.lock(name)

        def work(number):
            with user.lock(name):
                order.append(number)

        holder.acquire()
        waiting = []
        for number in range(5):
            waiting.append(spawn(work, number))
            assert eventually(lambda: sum(1 + len(lane.waiters) for lane in list(lanes.values())) == len(waiting))
        holder.release()
        for each in waiting:
            each.result(TEST_TIMEOUT)
        assert order[:3] == [1, 2, 0]
        assert sorted(order) == list(range(5))

    def test_timeout_in_the_queue(self, kept, client, name, queued):
        """A waiter whose time is up in the local queue gives up in time, and the others stay."""
        holder, waiters = kept(1)
        start = client.backend.clock()
        assert not client.lock(name).acquire(timeout=self.short)
        assert client.backend.clock() - start >= self.short
        queued(1)
        holder.release()
        assert eventually(lambda: any(each.token for each, _ in waiters))

    def test_timeout_in_redis(self, client, name, spawn, queued):
        """When the waiter in Redis gives up, the next local waiter takes its place."""
        holder = client.lock(name)
        holder.acquire()
        first = spawn(client.lock(name).acquire, True, 3)
        assert eventually(lambda: client.backend.local_queues._queues)
        second = spawn(client.lock(name).acquire, True, TEST_TIMEOUT)
        queued(1)
        assert not first.result(TEST_TIMEOUT)
        queued(0)
        assert eventually(lambda: client.describe(name).waiters == 1)
        holder.release()
        assert second.result(WAKE)

    def test_force_release(self, kept, client, other, name):
        """After a forced release the waiter in Redis gets the lock, and the holder hands nothing over."""
        holder, waiters = kept(2)
        assert other.force_release(name)
        (keeper, waiting), *queue = waiters
        assert waiting.result(WAKE)
        with pytest.raises(LockLost):
            holder.release()
        assert keeper.owned()
        assert not any(each.token for each, _ in queue)
        keeper.release()
        for _ in queue:
            eventually(lambda: next((each for each, _ in queue if each.token), None)).release()

    def test_store_down(self, new_client, server, name, spawn, monkeypatch):
        """When the store is not reachable all local waiters get the error at once."""
        monkeypatch.setattr(base, "MAX_BLOCK", 1.0)  # the leader notices soon
        user = new_client(node_timeout=2.5)
        lanes = user.backend.local_queues._queues
        assert user.lock(name, ttl=60).acquire()
        waiting = [spawn(user.lock(name).acquire, True, TEST_TIMEOUT) for _ in range(15)]
        assert eventually(lambda: sum(len(lane.waiters) for lane in list(lanes.values())) == 14)
        server.pause()
        done, late = futures.wait(waiting, timeout=TEST_TIMEOUT)
        server.resume()
        assert not late
        assert all(isinstance(each.exception(), LockUnavailable) for each in done)

    def test_leader_that_vanishes(self, client, name, spawn, queued, monkeypatch):
        """When the waiter in Redis ends without notice, a local waiter takes its place."""
        monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 0.05)
        holder = client.lock(name)
        holder.acquire()
        first = spawn(client.lock(name).acquire, True, 3)
        (lane,) = eventually(lambda: list(client.backend.local_queues._queues.values()))
        second = spawn(client.lock(name).acquire, True, TEST_TIMEOUT)
        queued(1)
        lane.promote(Waiter(0, None))  # no reference to the waiter
        assert not first.result(TEST_TIMEOUT)
        queued(0)
        holder.release()
        assert second.result(WAKE)

    def test_new_caller_without_a_leader(self, client, name, spawn):
        """A caller that finds a queue whose leader has ended without notice asks Redis at once."""
        holder = client.lock(name)
        holder.acquire()
        first = spawn(acquired_and_released, client.lock(name))
        (lane,) = eventually(lambda: list(client.backend.local_queues._queues.values()))
        lane.promote(Waiter(0, None))  # no reference to the waiter
        second = spawn(acquired_and_released, client.lock(name))
        assert eventually(lambda: client.describe(name).waiters == 2)
        holder.release()
        assert first.result(WAKE)
        assert second.result(WAKE)

    def test_fork(self, client, name, spawn):
        """A forked child has a local queue of its own."""
        holder = client.lock(name)
        holder.acquire()
        keeper = client.lock(name)
        waiting = spawn(keeper.acquire, True, TEST_TIMEOUT)
        assert eventually(lambda: client.describe(name).waiters == 1)

        def child():
            lock = client.again().lock(name)
            return lock.acquire(timeout=TEST_TIMEOUT) and lock.release() is None

        theirs = spawn(in_child, child)
        assert eventually(lambda: client.describe(name).waiters == 2)
        holder.release()
        assert waiting.result(TEST_TIMEOUT)
        keeper.release()
        assert theirs.result(WAKE) is True
