"""A waiter that runs before the release that handed the lock over to it has returned."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.renewal.registry import renewal
from django_redlock.core.waiting import local_queue
from django_redlock.core.waiting.waiters import Waiter
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.service import poll


@pytest.fixture
def backend(redis_url):
    backend = RedisBackend(redis_url, node_timeout=5)
    yield backend
    backend.close()


def until_queued(backend, number):
    """Wait until so many callers wait for locks of the backend: the leader, and those behind it."""
    queues = backend._local_queue._queues
    poll(
        lambda: sum(1 + len(queue.waiters) for queue in list(queues.values())) == number,
        timeout=TEST_TIMEOUT,
        what="a waiter",
    )


def waiting(backend, handles, taken):
    """Return a thread for each handle, which waits for the lock in this order and sets `taken` when it holds it."""
    threads = []
    for handle in handles:
        threads.append(threading.Thread(target=lambda handle=handle: handle.acquire() and taken.set(), daemon=True))
        threads[-1].start()
        until_queued(backend, len(threads))
    return threads


def test_the_next_holder_keeps_its_lease(backend, unique, monkeypatch):
    """A release sends no request for a lease that the next holder already has."""
    monkeypatch.setattr(local_queue, "FRESH_SECONDS", TEST_TIMEOUT)
    holder, leader, following = (backend.lock(unique) for _ in range(3))
    taken = threading.Event()
    holder.acquire()
    threads = waiting(backend, (leader, following), taken)

    def wait_for_the_next_holder(frame, event, _):
        if event == "return" and frame.f_code.co_name == "_next_waiter":
            assert taken.wait(TEST_TIMEOUT)

    before = sys.getprofile()
    sys.setprofile(wait_for_the_next_holder)
    try:
        holder.release()
    finally:
        sys.setprofile(before)
    assert following.owned()
    following.release()
    threads[0].join(TEST_TIMEOUT)
    assert leader.owned()
    leader.release()


def test_an_interrupted_release_leaves_the_next_holder_its_lock(backend, unique, monkeypatch):
    """A release that is interrupted after the hand-over releases nothing in the background."""
    monkeypatch.setattr(local_queue, "FRESH_SECONDS", TEST_TIMEOUT)
    grant, main = Waiter.grant, threading.current_thread()

    def interrupted(waiter, lease):
        grant(waiter, lease)
        if threading.current_thread() is main:
            raise KeyboardInterrupt

    monkeypatch.setattr(Waiter, "grant", interrupted)
    holder, *handles = (backend.lock(unique) for _ in range(3))
    taken = threading.Event()
    holder.acquire()
    token, threads = holder.token.encode(), waiting(backend, handles, taken)
    with pytest.raises(KeyboardInterrupt):
        holder.release()
    assert taken.wait(TEST_TIMEOUT)
    poll(lambda: token not in renewal.entries, timeout=TEST_TIMEOUT, what="what was left for the background")
    leader, following = handles
    assert following.owned()
    following.release()
    threads[0].join(TEST_TIMEOUT)
    assert leader.owned()
    leader.release()


def test_a_waiter_of_an_interrupted_hand_over_gives_up_in_time(backend, unique, monkeypatch):
    """A waiter whose hand-over is interrupted before the grant waits no longer than its timeout."""
    monkeypatch.setattr(local_queue, "FRESH_SECONDS", TEST_TIMEOUT)

    def interrupted(waiter, lease):
        raise KeyboardInterrupt

    monkeypatch.setattr(Waiter, "grant", interrupted)
    holder = backend.lock(unique)
    holder.acquire()
    with ThreadPoolExecutor(2) as pool:
        outcomes = []
        for timeout in (TEST_TIMEOUT, 5):
            outcomes.append(pool.submit(backend.lock(unique).acquire, timeout=timeout))
            until_queued(backend, len(outcomes))
        with pytest.raises(KeyboardInterrupt):
            holder.release()
        try:
            assert outcomes[1].result(TEST_TIMEOUT) is False
        finally:
            backend.force_release(unique)
