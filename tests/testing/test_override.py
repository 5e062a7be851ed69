"""`override_locks`, `assert_locked` and planned failures, without pytest's help."""

import asyncio
import contextlib
import threading
import unittest

import pytest
from django.core.signals import setting_changed
from django.test import SimpleTestCase, override_settings

from django_redlock import lock, locks, multilock, rlock, rwlock, semaphore, striped
from django_redlock.backends.dummy import DummyBackend
from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.locmem.backend import _tables
from django_redlock.backends.redis import RedisBackend
from django_redlock.decorators import locked
from django_redlock.errors import LockLost, LockNotAcquired, LockUnavailable
from django_redlock.signals import lock_lost
from django_redlock.testing import Clock, Rehearsal, assert_locked, assert_not_locked, override_locks
from django_redlock.transactions import CommitLock

REDIS = "django_redlock.backends.redis.RedisBackend"
DOWN = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def configured(settings):
    """A project whose stores are not reachable."""
    settings.REDLOCK = {
        "default": {"BACKEND": REDIS, "LOCATION": DOWN, "OPTIONS": {"ttl": 7, "max_ttl": 70, "blocking_timeout": 3}},
        "payments": {"BACKEND": REDIS, "LOCATION": DOWN, "KEY_PREFIX": "payments"},
        "unknown": {"BACKEND": REDIS, "LOCATION": "what the environment names"},
    }
    yield
    locks.reset()


@locked("report", blocking=False)
def report():
    return "written"


@pytest.mark.parametrize("entering", [True, False], ids=["enter", "exit"])
def test_a_receiver_that_raises(entering):
    """The locks of the settings are back, whatever receivers of ``setting_changed`` raise."""

    def failing(*, enter, **_):
        if enter is entering:
            raise ZeroDivisionError

    receivers = setting_changed.receivers[:]
    setting_changed.connect(failing)
    setting_changed.receivers.insert(0, setting_changed.receivers.pop())  # it comes before the receiver of the locks
    setting_changed.sender_receivers_cache.clear()
    try:
        with contextlib.suppress(ZeroDivisionError), override_locks():
            assert not entering
    finally:
        setting_changed.disconnect(failing)
    assert setting_changed.receivers == receivers
    assert type(locks["default"]) is RedisBackend


class TestOverriding:
    def test_every_alias(self):
        """Locks of every alias are in memory, separately, with the times of the settings."""
        with override_locks() as rehearsal, lock("x"):
            assert isinstance(rehearsal, Rehearsal)
            assert all(isinstance(locks[alias], LocMemBackend) for alias in ("default", "payments", "unknown"))
            assert_locked("x")
            assert_not_locked("x", using="payments")
            assert (locks["default"].ttl, locks["default"].max_ttl) == (7, 70)
            assert locks["default"].blocking_timeout == 3
            with pytest.raises(ValueError, match="at most 70 s"):
                lock("y", ttl=71)
        with pytest.raises(LockUnavailable):
            lock("x").acquire()

    @pytest.mark.parametrize("earlier_settings", [False, True])
    def test_earlier_handles(self, redis_server, settings, earlier_settings):
        """Handles that were made before, as in a module, are in memory, too, and are on Redis again afterwards."""
        options = {"history": False, "node_timeout": 5}
        entry = {"BACKEND": REDIS, "LOCATION": redis_server.url, "KEY_PREFIX": "shop", "OPTIONS": options}
        settings.REDLOCK = {"default": entry}
        handles = [lock("x"), rlock("r"), semaphore("s", limit=2), multilock(["a", "b"]), striped("p", 3)]
        handles += [rwlock("w").read, lock("f", fair=True), lock("e", every=60), CommitLock.like(lock("c"), True)]
        if earlier_settings:
            settings.REDLOCK = {**settings.REDLOCK}
            lock("of the later settings")
        for _ in range(2):
            with override_locks() as rehearsal, contextlib.ExitStack() as held:
                for each in handles:
                    held.enter_context(each)
                    assert each.owned()
                assert_locked("x")
                rehearsal.advance(4)
                with override_locks():
                    assert_not_locked("x")
                    assert not handles[0].locked()
                assert handles[0].owned()
            with redis_server.client() as client:
                assert client.keys() == []
        with handles[0], redis_server.client() as client:
            assert client.keys() == [b"shop:{x}"]

    def test_isolated(self):
        """Each `override_locks` has locks of its own, and leaves nothing behind."""
        with override_locks() as rehearsal, lock("x"):
            with override_locks() as inner:
                assert_not_locked("x")
            assert_locked("x")
        places = f"{rehearsal.place} ", f"{inner.place} "
        assert not any(where.startswith(places) for where in _tables)

    def test_without_settings(self):
        with override_settings(REDLOCK=None), override_locks(), lock("x"):
            assert_locked("x")

    def test_dummy(self):
        """With "dummy" every lock is granted and none is held."""
        with override_locks("dummy"), lock("x"), lock("x"):
            assert isinstance(locks["default"], DummyBackend)
            assert_not_locked("x")
        with pytest.raises(ValueError, match="'locmem' or 'dummy', not 'redis'"):
            override_locks("redis")

    def test_function(self):
        """`override_locks` decorates sync and async functions; `kwarg_name` passes the rehearsal."""

        @override_locks(kwarg_name="redlock")
        def test(redlock):
            redlock.refuse_next()
            with pytest.raises(LockNotAcquired):
                report()
            return report()

        @override_locks(kwarg_name="redlock")
        async def atest(redlock):
            redlock.break_next()
            with pytest.raises(LockUnavailable):
                await lock("x").aacquire()
            async with lock("x"):
                assert_locked("x")
            return assert_not_locked("x")

        assert test() == "written"
        assert asyncio.run(atest()) is None

    @pytest.mark.parametrize("base", [unittest.TestCase, SimpleTestCase])
    def test_class(self, base):
        """`override_locks` decorates test cases, and each test has its own locks."""

        @override_locks(attr_name="redlock")
        class Tests(base):
            def setUp(self):
                lock("before").acquire()

            def test_one(self):
                assert_locked("before")
                assert_not_locked("held")
                lock("held").acquire()
                self.redlock.advance(8)
                assert_not_locked("before")

            test_two = test_one

        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Tests).run(result)
        assert (result.testsRun, result.failures, result.errors) == (2, [], [])

    def test_changing_caches(self):
        """Backends that are rebuilt within a test keep held locks and planned failures."""
        with override_locks() as rehearsal, lock("x"):
            rehearsal.refuse_next()
            locks.reset()
            assert_locked("x")
            assert not lock("y").acquire()


def test_messages_of_assertions():
    """A failed assertion says what is held, and by which owner."""
    with override_locks(), lock("x", owner="me"):
        assert assert_locked("x").owner.label == "me"
        with pytest.raises(AssertionError, match=r"lock 'y' on 'default' is not held \(held: 'x'\)"):
            assert_locked("y")
        with pytest.raises(AssertionError, match=r"lock 'x' on 'default' is held by .*me"):
            assert_not_locked("x")
    with override_locks(), pytest.raises(AssertionError, match=r"\(held: none\)"):
        assert_locked("y")


class TestPlannedFailures:
    @pytest.fixture
    def rehearsal(self):
        with override_locks() as rehearsal:
            yield rehearsal

    def test_refused(self, rehearsal):
        """refuse_next() refuses one acquire, whatever its timeout."""
        rehearsal.refuse_next("x*")
        assert lock("y").acquire(blocking=False)
        assert rehearsal.planned == [("x*", "refused")]
        with pytest.raises(LockNotAcquired) as refused, lock("x1", blocking_timeout=1000):
            pass
        assert refused.value.retry_after == 7
        assert "the test" in str(refused.value)
        assert rehearsal.planned == []
        assert lock("x1").acquire(blocking=False)

    def test_lost(self, rehearsal):
        """lose_next() grants the next acquire and loses the lease: handle, store and listeners know."""
        notified, signalled = threading.Event(), threading.Event()

        def hear(**_kwargs):
            signalled.set()

        lock_lost.connect(hear)
        rehearsal.lose_next()
        with lock("x", on_lost=lambda _lock: notified.set()) as held:
            assert held.lost
            assert not held.owned()
            with pytest.raises(LockLost):
                held.check()
            assert lock("x").acquire(blocking=False)
        assert notified.wait(20)
        assert signalled.wait(20)
        lock_lost.disconnect(hear)

    def test_broken(self, rehearsal):
        """break_next() makes the next acquire raise LockUnavailable."""
        rehearsal.break_next()
        with pytest.raises(LockUnavailable) as failed:
            lock("x").acquire()
        assert failed.value.name == "x"
        assert_not_locked("x")

    def test_broken_for_a_while(self, rehearsal):
        """All operations raise LockUnavailable with the lock's name, and a lease that does not expire survives."""
        with lock("x", ttl=70) as held:
            with rehearsal.broken():
                for ask in (
                    held.extend,
                    held.locked,
                    lock("x").acquire,
                    lambda: asyncio.run(lock("x").aacquire()),
                    lambda: locks["default"].describe("x"),
                ):
                    with pytest.raises(LockUnavailable) as failed:
                        ask()
                    assert failed.value.name == "x"
                with pytest.raises(LockUnavailable):
                    locks["default"].held()
                rehearsal.advance(40)
                assert not held.lost
            held.extend()
        with pytest.raises(LockLost), lock("x"), rehearsal.broken():
            rehearsal.advance(8)

    def test_in_order(self, rehearsal):
        """Planned failures happen in their order, to the names they were planned for."""
        rehearsal.break_next("a")
        rehearsal.refuse_next()
        assert lock("b").acquire() is False
        rehearsal.refuse_next("a")
        with pytest.raises(LockUnavailable):
            lock("a").acquire()
        assert lock("a").acquire() is False
        assert lock("a").acquire()

    def test_without_settings(self):
        """A rehearsal creates a backend for code that gets one as an argument."""
        rehearsal = Rehearsal()
        backend = rehearsal.backend(ttl=5)
        rehearsal.refuse_next()
        assert not backend.lock("x").acquire()
        assert backend.lock("x").acquire()
        assert isinstance(backend.clock, Clock)
        rehearsal.advance(6)
        assert not backend.lock("x").locked()
        assert not Rehearsal().backend().lock("x").locked()
