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


def test_the_next_holder_keeps_its_lease(backend, unique, monkeypatch):
    """A release sends no request for a lease that the next holder already has."""
    monkeypatch.setattr(local_queue, "FRESH_SECONDS", TEST_TIMEOUT)
    holder, leader, following = (backend.lock(unique) for _ in range(3))
    queues, taken = backend._local_queue._queues, threading.Event()
    holder.acquire()
    threads = []
    for handle in (leader, following):
        threads.append(threading.Thread(target=lambda handle=handle: handle.acquire() and taken.set(), daemon=True))
        threads[-1].start()
        poll(
            lambda: sum(1 + len(queue.waiters) for queue in list(queues.values())) == len(threads),
            timeout=TEST_TIMEOUT,
            what="a waiter",
        )

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
    queues, taken = backend._local_queue._queues, threading.Event()
    holder.acquire()
    token, threads = holder.token.encode(), []
    for handle in handles:
        threads.append(threading.Thread(target=lambda handle=handle: handle.acquire() and taken.set(), daemon=True))
        threads[-1].start()
        poll(
            lambda: sum(1 + len(queue.waiters) for queue in list(queues.values())) == len(threads),
            timeout=TEST_TIMEOUT,
            what="a waiter",
        )
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
    holder, queues = backend.lock(unique), backend._local_queue._queues
    holder.acquire()
    with ThreadPoolExecutor(2) as pool:
        waiting = []
        for timeout in (TEST_TIMEOUT, 3):
            waiting.append(pool.submit(backend.lock(unique).acquire, timeout=timeout))
            poll(
                lambda: sum(1 + len(queue.waiters) for queue in list(queues.values())) == len(waiting),
                timeout=TEST_TIMEOUT,
                what="a waiter",
            )
        with pytest.raises(KeyboardInterrupt):
            holder.release()
        try:
            assert waiting[1].result(TEST_TIMEOUT) is False
        finally:
            backend.force_release(unique)
