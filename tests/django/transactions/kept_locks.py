"""Helpers for tests of locks that a transaction keeps."""

from django.db import connections

from django_redlock.core.values import LEAST
from tests.support.service import poll


def wrapped_methods():
    """Return the names of the connection's wrapped methods: none, unless a lock is kept."""
    return [name for name in ("commit", "rollback", "close", "set_autocommit") if name in vars(connections["default"])]


def end_lease(held=None):
    """End the lease of a handle by its clock, by default of the hold that the transaction keeps."""
    if held is None:
        [hold] = vars(connections["default"])["_redlock_kept"].holds
    else:
        hold = held.hold
    hold.lease = hold.lease.shortened(hold.store.clock(), LEAST)
    poll(lambda: hold.lost, timeout=20, what="the end of the lease")


class Boom(Exception):
    """The error of a test's own code."""
