"""Connecting to nodes in the background, and interrupts meanwhile."""

import itertools
import sys
import threading
from functools import partial

import pytest

from django_redlock.client.fanout import background_connector
from django_redlock.client.fanout.background_connector import Connector
from django_redlock.client.urls import node_for
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.interrupts import interrupted
from tests.support.service import poll


def interrupted_after_a_call(function, step):
    """Interrupt ``function`` at the ``step``-th call of a C function by the connector or by a function that it calls.

    Not after the ``__enter__`` of a lock of the standard library, which Python 3.14 leaves locked.
    """
    steps = itertools.count()

    def strike(frame, event, called):
        path = frame.f_code.co_filename
        if path == threading.__file__ and getattr(called, "__name__", "") == "__enter__":
            return
        ours = background_connector.__file__ in (path, frame.f_back.f_code.co_filename)
        if event == "c_return" and ours and next(steps) == step:
            raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def connected(node):
    route = node.find_pool(b"")
    connection = route.idle()
    if connection is not None:
        route.checkin(connection)
    return connection is not None


def over(dialer):
    return not dialer.is_connecting(0)


@pytest.mark.parametrize("strike", [interrupted, interrupted_after_a_call])
def test_interrupted_anywhere(redis_server, strike):
    """After an interrupt anywhere in dial(), other threads can connect to the node."""
    for step in itertools.count():
        node = node_for(redis_server.url, 10)
        dialer = Connector([node], 10)
        struck = strike(partial(dialer.connect, 0), step)
        another = threading.Thread(target=dialer.connect, args=(0,), daemon=True)
        another.start()
        another.join(TEST_TIMEOUT)
        assert not another.is_alive()
        poll(partial(connected, node), timeout=TEST_TIMEOUT, what="a connection")
        poll(partial(over, dialer), timeout=TEST_TIMEOUT, what="the end of it")
        assert dialer.failure(0, 0.0) is None
        node.find_pool(b"").close()
        if not struck:
            break
    assert step > 3
