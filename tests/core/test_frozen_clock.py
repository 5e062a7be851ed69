"""Locks under freezegun, which stops the clocks that a test suite reads."""

import threading
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.core.process import clock
from django_redlock.testing import Clock

WAIT = 20
freeze_time = pytest.importorskip("freezegun").freeze_time


@pytest.fixture(params=["locmem", "redis"])
def backend(request, unique, redis_url):
    with freeze_time("2026-01-01"):
        backend = (
            LocMemBackend(unique, clock=Clock())
            if request.param == "locmem"
            else RedisBackend(redis_url, node_timeout=5)
        )
    yield backend
    backend.close()


def test_renewed(backend, unique):
    with freeze_time("2026-01-01"), backend.lock(unique, ttl=0.6) as held:
        lease, stopped = held.hold.lease, time.monotonic()
        threading.Event().wait(1.2)
        assert time.monotonic() == stopped
        assert held.remaining > 0
        assert held.hold.lease is not lease


def test_timeout(backend, unique):
    """A waiter is refused when its time is up, however long the clock stands."""
    with freeze_time("2026-01-01"), backend.lock(unique):
        refused = []
        thread = threading.Thread(target=lambda: refused.append(backend.lock(unique).acquire(timeout=0.2)), daemon=True)
        thread.start()
        thread.join(WAIT)
        assert refused == [False]


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has this clock")
def test_suspended_machine(monkeypatch):
    awake = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    assert clock.monotonic() - time.clock_gettime(time.CLOCK_MONOTONIC) == pytest.approx(awake, abs=1)
    read = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: read(which) + 3600 * (which == time.CLOCK_BOOTTIME))
    assert clock._clock()() - time.monotonic() == pytest.approx(3600 + awake, abs=1)
