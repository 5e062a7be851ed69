"""Inspection shows since when a lock of each kind is held, and its ttl."""

import threading
import time

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.lock_info import LockInfo, read_lock_info
from django_redlock.core.owner import Owner
from django_redlock.core.primitives import base
from django_redlock.testing.conformance.shared_handles import MAKE
from tests.support.locks import new_lock
from tests.support.service import poll

WAIT = 2.0  # seconds that each of them waits
BLOCK = 0.2  # seconds that a waiter blocks at the longest: how exact its time is
SLACK = 1.5  # seconds by which a busy machine may delay the request before the granted one


def lock_of(kind, backend, name, **options):
    return new_lock("mutex" if kind == "fair" and backend.fair is None else kind, backend, name, **options)


@pytest.fixture(params=["redis", "cluster", "redlock", "locmem"])
def backend(request, unique):
    """A backend that knows all kinds."""
    if request.param == "locmem":
        yield LocMemBackend(unique)
        return
    if request.param == "redis":
        made = RedisBackend(request.getfixturevalue("redis_url"), node_timeout=5)
    elif request.param == "cluster":
        made = RedisBackend(request.getfixturevalue("cluster").url, node_timeout=5)
    else:
        nodes = request.getfixturevalue("own_nodes")(3)
        made = RedlockBackend([node.url for node in nodes], node_timeout=5, quarantine=False)
    yield made
    made.close()


def test_waiting_is_not_holding(backend, unique, monkeypatch):
    """A lock is held since its grant, not since the call of acquire()."""
    monkeypatch.setattr(base, "MAX_BLOCK", BLOCK)
    monkeypatch.setattr(base, "MAX_BLOCK_IN_QUEUE", BLOCK)
    first = {kind: lock_of(kind, backend, f"{unique}:{kind}", ttl=20) for kind in MAKE}
    assert all(lock.acquire(timeout=20) for lock in first.values())
    go_on = threading.Event()

    def hold(kind):
        with lock_of(kind, backend, f"{unique}:{kind}", ttl=20, owner="waiter"):
            assert go_on.wait(60)

    def infos(kind):
        return [info for info in backend.held() if f"{unique}:{kind}" in info.name]

    threads = [threading.Thread(target=hold, args=(kind,)) for kind in MAKE]
    for thread in threads:
        thread.start()
    for kind in MAKE:
        poll(lambda kind=kind: any(info.waiters for info in infos(kind)), timeout=20, what=f"{kind} to be waited for")
    time.sleep(WAIT)
    released = time.time()
    for lock in first.values():
        lock.release()
    for kind in MAKE:
        poll(lambda kind=kind: "waiter" in str([info.owner for info in infos(kind)]), timeout=20, what="the waiter")
        for info in infos(kind):
            assert released - SLACK < info.since <= time.time() + 0.001, kind
            assert info.ttl == pytest.approx(20)
    go_on.set()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize("kind", MAKE)
def test_extended(backend, kind, unique):
    """An extension replaces the remaining time, and the shown ttl is at least the remaining time."""
    with lock_of(kind, backend, unique, ttl=20) as lock:
        [first, *_] = [info for info in backend.held() if unique in info.name]
        lock.extend(60)
        for info in (info for info in backend.held() if unique in info.name):
            assert 30 < info.remaining <= info.ttl <= 60
            assert info.since == pytest.approx(first.since, abs=0.01)


def test_locks_of_other_programs():
    """A lock without an end, or of another program, is shown without ttl and start."""
    found = [read_lock_info("x", [b"string", value, 9, 0, b"d"]) for value in (b"theirs", b"t {}")]
    found += [read_lock_info("x", [b"string", b't {"ttl":20}', -1, 0, b"d"]), LockInfo("x", "mutex", Owner(), 1.0)]
    assert [(info.ttl, info.since) for info in found] == [(None, None)] * 4
