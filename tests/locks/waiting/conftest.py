"""Waiters that only a wake-up wakes."""

import pytest

from django_redlock.core.primitives import base
from django_redlock.core.waiting import local_queue


@pytest.fixture
def woken_only(monkeypatch):
    """Waiters do not look by themselves for a minute, so that a test can allow a wake-up 20 seconds."""
    monkeypatch.setattr(base, "MAX_BLOCK", 60.0)
    monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 60.0)
