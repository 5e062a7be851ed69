"""Connecting to nodes, and one who is interrupted meanwhile."""

import itertools
import threading
from functools import partial

from django_redlock.backends.dialing import Dialer
from django_redlock.backends.locations import node_for
from django_redlock.testing.faces import PATIENCE
from tests.core.test_interrupted import interrupted


def dialling(dialer):
    try:
        dialer.dial([0], 1)
    except RuntimeError as error:  # what a Condition makes of it that has let go of its lock at that moment
        raise KeyboardInterrupt from error


def test_interrupted_anywhere(redis_server):
    """Wherever dial() is interrupted, others connect to the node as before: nothing stays locked, and it is dialled."""
    for step in itertools.count():
        node = node_for(redis_server.url, 10)
        dialer = Dialer([node], 10)
        if not interrupted(partial(dialling, dialer), step):
            break
        another = threading.Thread(target=dialer.dial, args=([0], 1), daemon=True)
        another.start()
        another.join(PATIENCE)
        assert not another.is_alive()
        assert dialer.failure(0, 0.0) is None
        route = node.find(b"")
        connection = route.spare()
        assert connection is not None
        route.give(connection)
        route.close()
    assert step > 10
