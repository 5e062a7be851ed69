"""A process that can start no more threads, as under a container's limit."""

import threading

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.core.background.work import background
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT


def refuse(_thread):
    raise RuntimeError("can't start new thread")


def test_a_loss_is_reported(unique, monkeypatch):
    """Without new threads, the renewal thread calls on_lost itself and goes on renewing other locks."""
    backend, told = LocMemBackend(unique), threading.Event()
    lost = backend.lock("lost", on_lost=lambda _: told.set())
    assert lost.acquire()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    background.mark_lost(lost.hold.lease.claim.token, "for a test")
    assert told.wait(TEST_TIMEOUT)
    assert lost.lost


def test_nodes_can_not_be_connected(monkeypatch):
    """Without new threads to connect to the nodes, acquire() raises LockUnavailable with the reason."""
    backend = RedlockBackend([f"redis://127.0.0.1:{port}/0" for port in (1, 2, 3)])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(LockUnavailable, match="no thread can be started"):
        backend.lock("stock").acquire()
