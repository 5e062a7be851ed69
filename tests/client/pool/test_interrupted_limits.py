"""Interrupts in the counts of connections, such as Ctrl-C or a task's soft time limit."""

import itertools
import threading

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import interrupted


def test_anywhere_in_a_wait(redis_url, unique):
    """After an interrupt anywhere in the counts of a wait, other threads can wait on the same server."""
    backend = RedisBackend(redis_url, node_timeout=10)

    def wait():
        assert not backend.lock(unique).acquire(timeout=0.01)

    with backend.lock(unique):
        for step in itertools.count():
            struck = interrupted(wait, step, r"/client/pool\.py|/threading\.py:__")
            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            thread.join(TEST_TIMEOUT)
            assert not thread.is_alive(), f"at step {step}"
            if not struck:
                break
    assert step > 5


def test_anywhere_in_a_limited_request(redis_url, unique):
    """Interrupts leave no connection counted as in use."""
    backend = RedisBackend(f"{redis_url}?max_connections=2", node_timeout=1)

    for step in itertools.count():
        struck = interrupted(backend.lock(f"{unique}:{step}").locked, step, r"/client/(pool|request)\.py")
        for _ in range(2):
            assert not backend.lock(unique).locked(), f"at step {step}"
        if not struck:
            break
    assert step > 5
