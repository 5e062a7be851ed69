"""Helpers for tests of locks that a transaction keeps."""

from django.db import connections

from tests.support.service import poll


def wrapped_methods():
    """Return the names of the connection's wrapped methods: none, unless a lock is kept."""
    return [name for name in ("commit", "rollback", "close", "set_autocommit") if name in vars(connections["default"])]


def wait_for_loss():
    """Wait until the kept lock is lost."""
    [keeper] = vars(connections["default"])["_redlock_kept"].locks
    poll(lambda: keeper.lost, timeout=20, what="the end of the lease")


class Boom(Exception):
    """The error of a test's own code."""
