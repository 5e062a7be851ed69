"""One description of a lock, from the descriptions by several nodes."""

import pytest

from django_redlock.core.algorithms.merging import merge_views
from django_redlock.core.lock_info import LockInfo
from django_redlock.core.owner import Owner

HOLDER, WAITER = Owner(label="holder"), Owner(label="waiter")


@pytest.mark.parametrize("shares", [{}, {"holders": (HOLDER,), "digests": ("d",)}], ids=["one-holder", "shared"])
def test_queue_of_one_node_only(shares):
    """The waiters and the queue are those of the node that lists most waiters: a waiter reaches the nodes in turn."""
    without = LockInfo("stock", "mutex", HOLDER, 9.0, digest="d", nodes=("a",), **shares)
    listed = LockInfo("stock", "mutex", HOLDER, 9.0, 1, ("b",), "d", (WAITER,), **shares)
    merged = merge_views([without, listed])
    assert (merged.waiters, merged.queue, merged.nodes) == (1, (WAITER,), ("a", "b"))
