"""Helpers for the tests of ZooKeeperBackend."""

from contextlib import suppress
from pathlib import Path

from django_redlock.errors import LockUnavailable
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
