"""A signal handler may use locks in the middle of an acquire or a release, with ZooKeeper."""

import contextlib
from functools import partial

from django_redlock.errors import LockUnavailable
from tests.backends.test_signal_handlers import everywhere, struck, taken


def test_a_handler_does_not_deadlock(connected, zookeeper):
    """A signal handler that uses locks anywhere within our code does not deadlock."""
    backend = connected(zookeeper.hosts)
    taken(backend, "first")
    everywhere(lambda step: struck(partial(taken, backend, "mine"), step, partial(taken, backend, "the handler's")))


def test_while_it_connects(connected, zookeeper):
    """A signal handler that uses locks while the session is opened may get LockUnavailable, and does not deadlock."""
    backend = connected(zookeeper.hosts)

    def handler():
        with contextlib.suppress(LockUnavailable):
            taken(backend, "the handler's")

    def strike(step):
        backend.close()
        return struck(partial(taken, backend, "mine"), step, handler)

    everywhere(strike)
