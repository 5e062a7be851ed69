"""Tasks of different modes that have the same key."""

from __future__ import annotations

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.locmem.task_store import MemoryStore
from tests.single_instance.player import Player


@pytest.fixture(params=["redis", "memory"])
def players(request):
    """A task with ``until_executed`` and a task with ``while_executing``, which have the same key."""
    redis = request.param == "redis"
    store = request.getfixturevalue("redis_store") if redis else MemoryStore(LocMemBackend("shared keys"))
    queued, started = Player(store, "until_executed"), Player(store, "while_executing")
    started.name, started.keys = queued.name, queued.keys
    return queued, started


def test_a_queued_call_does_not_start_beside_the_body_of_another_task(players):
    """A call that is queued does not start while another task with the same key runs that ignores queued calls."""
    queued, started = players
    assert queued.play("submit", "a", "1") == "granted"
    assert started.play("start", "b", "1") == "granted"
    assert queued.play("start", "a", "1") == "running"
    assert started.play("end", "b", "1") == 1
    assert queued.play("start", "a", "1") == "granted"


def test_a_queued_call_passes_other_queued_calls(players):
    """A call that is queued starts although another call is queued, too: it has its place among them."""
    queued, _ = players
    assert queued.play("submit", "a", "1") == "granted"
    other = Player(queued.store, "until_executing", limit=2)
    other.name, other.keys = queued.name, queued.keys
    assert other.play("submit", "b", "1") == "granted"
    assert queued.play("start", "a", "1") == "granted"
