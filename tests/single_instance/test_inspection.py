"""Records of tasks as the store lists them and releases them."""

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.core.flow.drivers import drive
from django_redlock.errors import LockError
from django_redlock.single_instance.records import submit
from tests.single_instance.player import Player
from tests.support.service import poll


def test_a_foreign_key_is_left_alone(redis_store):
    player = Player(redis_store, "until_executed", 1)
    with redis_store.lock(player.name), pytest.raises(LockError, match="WRONGTYPE"):
        player.play("submit", "a", "1")


@pytest.fixture(params=["redis", "memory"])
def backend(request):
    return request.getfixturevalue("redis_store") if request.param == "redis" else LocMemBackend("listed")


def test_records_are_listed_and_released(backend):
    """Records are listed by pattern with task, id and state, and released by name and digest."""
    player = Player(backend.task_store(), "until_executed")
    player.play("submit", "a", "1")
    assert backend.held("other:*") == []
    [queued] = backend.held(player.name)
    assert (queued.name, queued.kind, queued.owner.extra) == (player.name, "task", {"state": "queued", "task_id": "a"})
    assert 590 < queued.remaining <= 600
    player.play("start", "a", "1")
    player.play("extend", "a", "1")
    running = backend.describe(player.name)
    assert running.owner.extra["state"] == "running"
    assert not backend.force_release(player.name, "0" * 40)
    assert backend.force_release(player.name, queued.digest)
    assert backend.held(player.name) == []
    assert player.play("extend", "a", "1") == 0
    assert player.play("submit", "b", "1") == "granted"


def test_another_task_is_another_holding(backend):
    player = Player(backend.task_store(), "until_executed")
    player.play("submit", "a", "1")
    seen = backend.describe(player.name).digest
    player.play("cancel", "a", "1")
    player.play("submit", "b", "1")
    assert not backend.force_release(player.name, seen)
    assert backend.describe(player.name).owner.extra["task_id"] == "b"


def test_an_expired_record_is_not_listed(backend):
    """The lock is free when its last task has expired, although its key was kept for a task with a longer life."""
    store = backend.task_store()
    player = Player(store, "until_executed")
    player.play("submit", "a", "1")
    brief = player.call("b", "b-1")._replace(queued_ttl=0.5)
    assert drive(submit(brief, False, True, store.algorithm), store.perform) is None
    if (queued := backend.describe(player.name)) is not None:  # None: a busy machine has taken its time
        assert (queued.owner.extra["task_id"], queued.remaining <= 0.5) == ("b", True)
    poll(lambda: backend.describe(player.name) is None, timeout=5, what="the end of the record")
    assert backend.held(player.name) == []
