"""A signal handler may use locks in the middle of an acquire or a release, with ZooKeeper."""

import contextlib
from functools import partial

from django_redlock.errors import LockUnavailable
from tests.backends.test_signal_handlers import everywhere, struck, taken


def test_anywhere(connected, zookeeper):
    """Wherever it strikes in our own code, both are done: nobody waits for oneself."""
    backend = connected(zookeeper.hosts)
    taken(backend, "first")
    everywhere(lambda step: struck(partial(taken, backend, "mine"), step, partial(taken, backend, "the handler's")))


def test_while_it_connects(connected, zookeeper):
    """Where it strikes while the session is being opened it may be told to come again."""
    backend = connected(zookeeper.hosts)

    def handler():
        with contextlib.suppress(LockUnavailable):
            taken(backend, "the handler's")

    def strike(step):
        backend.close()
        return struck(partial(taken, backend, "mine"), step, handler)

    everywhere(strike)
