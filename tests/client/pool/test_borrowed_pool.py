"""A borrowed pool whose owner closes its connections, as django-redis does with DJANGO_REDIS_CLOSE_CONNECTION."""

import contextlib
import gc
import itertools
import re
import sys

import pytest

from django_redlock.backends.redis import RedisBackend

LIMIT = 2  # connections; two that are not given back would be all


def closed_at(step, function, pool):
    """Call ``function()``, and close ``pool`` at the ``step``-th begin or end of a function of the client or redis-py.

    Returns the result of ``function()``, and whether the pool was closed. Steps in which this thread has the pool's
    mutex don't count: another thread would wait, and the mutex of redis-py 5.2 is not reentrant.
    """
    steps, called = itertools.count(), []

    def is_free():
        free = pool._lock.acquire(blocking=False)
        if free:
            pool._lock.release()
        return free

    def strike(frame, _event, _):
        frame.f_trace_lines = False
        ours = re.search("django_redlock.client|redis.connection", frame.f_code.co_filename)
        if ours and is_free() and next(steps) == step:
            called.append(step)
            sys.settrace(None)
            pool.disconnect()
        return strike

    before = sys.gettrace()
    gc.disable()  # or it would strike in the `__del__` of what others have left
    sys.settrace(strike)
    try:
        return function(), bool(called)
    finally:
        sys.settrace(before)
        gc.enable()


@pytest.fixture
def backend(redis_url):
    """A backend on a pool of `LIMIT` connections."""
    url = f"{redis_url}?max_connections={LIMIT}"
    with contextlib.closing(RedisBackend(url, node_timeout=10, history=False)) as backend:
        yield backend
        backend.nodes[0].find_pool(None)._borrowed.disconnect()  # close() leaves open what the test has interrupted


@pytest.mark.parametrize("operation", ["acquire", "extend", "locked", "release"])
def test_connections_closed_by_the_pools_owner(backend, unique, operation):
    """The request is repeated on another connection, and every connection is given back."""
    pool = backend.nodes[0].find_pool(None)._borrowed
    for step in itertools.count():
        lock = backend.lock(f"{unique}:{step}")
        if operation != "acquire":
            lock.acquire()
        result, struck = closed_at(step, getattr(lock, operation), pool)
        assert result is not False
        if lock.token is not None:
            lock.release()
        assert backend.lock(lock.name).acquire(False)
        if not struck:
            break
    assert step > 20
