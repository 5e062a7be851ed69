"""Locks in the memory of one process."""

import threading

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.locmem import backend as locmem


def test_first_use_by_two(monkeypatch, unique):
    """Two threads that use a location for the first time at once share one lock table."""
    together, got = threading.Barrier(2), []

    class SlowSpace(locmem.LockTable):
        def __init__(self):
            super().__init__()
            together.wait(10)  # both are making one

    monkeypatch.setattr(locmem, "LockTable", SlowSpace)
    backend = LocMemBackend(unique)
    threads = [threading.Thread(target=lambda: got.append(backend.lock("stock").acquire(False))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(got) == [False, True]


def test_locations_are_apart(unique):
    """Backends of one location share their locks, and backends of different locations don't."""
    first, same, another = LocMemBackend(unique), LocMemBackend(unique), LocMemBackend(unique + "x")
    with first.lock("stock"):
        assert not same.lock("stock").acquire(False)
        with another.lock("stock"):
            pass
    assert same.lock("stock").acquire(False)


def test_clear(unique):
    """clear() removes every lock of the location, and their holders have lost them."""
    backend = LocMemBackend(unique)
    lock = backend.lock("stock")
    lock.acquire()
    backend.clear()
    assert not lock.owned()
    assert backend.held() == []
