"""A signal's handler may use locks wherever it strikes, also in the midst of taking or releasing one."""

import itertools
import sys
import threading
from functools import partial

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.testing.faces import PATIENCE
from testproject.redis_server import RedisServer
from tests.support.group import Group


def struck(function, step, handler):
    """Whether ``handler()`` was called in the midst of ``function()``: at the ``step``-th call of one of ours."""
    steps, called = itertools.count(), False

    def strike(frame, *_):
        nonlocal called
        if "/django_redlock/" in frame.f_code.co_filename and next(steps) == step:
            sys.settrace(None)
            called = True
            handler()

    sys.settrace(strike)
    try:
        function()
    finally:
        sys.settrace(None)
    return called


def taken(backend, name):
    """Take it and give it back, so that what came late of the last one is read, too."""
    for _ in range(2):
        lock = backend.lock(name, blocking=False)
        assert lock.acquire()
        lock.release()


@pytest.fixture(params=[RedisBackend, RedlockBackend], ids=["redis", "redlock"])
def backend(request, start):
    """One with its connections open."""
    urls = [server.url for server in start(Group(RedisServer() for _ in range(3))).servers]
    where = urls if request.param is RedlockBackend else urls[0]
    backend = request.param(where, node_timeout=5, quarantine=False)
    taken(backend, "first")
    yield backend
    backend.close()


def test_anywhere(backend):
    """Wherever it strikes, both are done: nobody waits for oneself."""
    done = []

    def strike(step):
        done.append(struck(partial(taken, backend, "mine"), step, partial(taken, backend, "the handler's")))

    for step in itertools.count():
        thread = threading.Thread(target=strike, args=(step,), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert len(done) == step + 1, "it waits for itself, or has failed"
        if not done[-1]:
            break
    assert step > 20
