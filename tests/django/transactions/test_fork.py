"""A process that forks within a transaction keeps its locks, and the child keeps none."""

from __future__ import annotations

import pytest
from django.db import transaction

from django_redlock import lock
from django_redlock.testing.conformance.harness.fixtures import in_child

pytestmark = [pytest.mark.usefixtures("stores"), pytest.mark.django_db(transaction=True)]


def test_the_child_is_refused_the_lock():
    """A forked child is refused a lock that its parent's transaction keeps."""
    with transaction.atomic():
        with lock("stock", release_on_commit=True):
            pass
        assert in_child(lambda: lock("stock", release_on_commit=True).acquire(blocking=False)) is False
        assert lock("stock").locked()
    assert not lock("stock").locked()
