"""Helpers for the tests of ZooKeeperBackend, and holders in processes that tests kill and pause."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from django_redlock.backends.zookeeper import ZooKeeperBackend
from django_redlock.errors import LockLost, LockUnavailable
from tests.support.service import poll

PATIENCE = 60


def paused(server):
    """Send SIGSTOP to the server, and wait until each of its threads has stopped."""
    server.pause()
    for stat in Path(f"/proc/{server.pid}/task").glob("*/stat"):
        poll(lambda stat=stat: has_stopped(stat), timeout=PATIENCE, what="the pause")


def has_stopped(stat):
    with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
        return stat.read_text().rpartition(")")[2].split()[0] == "T"
    return True


def in_line(backend, name):
    held = backend.describe(name)
    return 0 if held is None else 1 + held.waiters


def until_in_line(backend, name, count):
    def are_in_line():
        with suppress(LockUnavailable):  # an election may take longer than a request may
            return in_line(backend, name) == count
        return False

    poll(are_in_line, timeout=3 * PATIENCE, what=f"{count} in line")


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
