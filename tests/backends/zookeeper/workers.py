"""Holders in separate processes that tests kill and pause."""

from typing import Any

from django_redlock.backends.zookeeper import ZooKeeperBackend
from django_redlock.errors import LockLost


def hold(channel: Any, hosts: str, name: str, session_timeout: float) -> None:
    """Acquire the lock and keep it renewed until told to report."""
    lock = ZooKeeperBackend(hosts, session_timeout=session_timeout, connect_timeout=20, node_timeout=10).lock(name)
    assert lock.acquire(timeout=20)
    channel.say("held", token=lock.token)
    channel.hear("look", timeout=60)
    lost = lock.lost
    try:
        lock.release()
    except LockLost:
        channel.say("looked", lost=lost, released=False)
    else:
        channel.say("looked", lost=lost, released=True)


def wait(channel: Any, hosts: str, name: str) -> None:
    """Wait for the lock without a timeout."""
    lock = ZooKeeperBackend(hosts, session_timeout=6, connect_timeout=20, node_timeout=10).lock(name)
    channel.say("waiting")
    lock.acquire()
    channel.say("held")
