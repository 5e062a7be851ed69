"""What is kept of deliveries that have ended: little, for long enough, and in the slot of the lock."""

from __future__ import annotations

import time

import pytest
from celery import Celery
from redis.crc import key_slot

from django_redlock import locks
from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.locmem.task_store import MemoryStore
from django_redlock.backends.redis import RedisBackend
from django_redlock.celery import single_instance_task
from django_redlock.celery.messages import Message
from django_redlock.single_instance.ended_deliveries import ended_mark, new_delivery_id
from tests.single_instance.player import Player

DELIVERIES = 300


def test_deliveries_that_have_ended_share_sets_that_are_arrays(redis_server):
    """Ended deliveries are kept in compact sets of numbers, which expire after the visibility timeout."""
    with redis_server.client() as client:
        before = set(client.keys("redlock:ended:*"))
        store = RedisBackend(redis_server.unix_url, node_timeout=5)
        sent = f"{int(time.time()):08x}"
        for number in range(DELIVERIES):
            player = Player(store, "while_executing", remember=3600.0)
            delivery = sent + f"{number << 9:016x}"  # all in one of the sets
            call = player.call("a", delivery)
            player.call = lambda *_, call=call: call
            assert player.play("start", "a", "") == "granted"
            assert player.play("end", "a", "") in (0, 1)
        (key,) = set(client.keys("redlock:ended:*")) - before
        assert client.memory_usage(key, samples=0) < 40 * DELIVERIES
        assert 3590_000 < client.pttl(key) <= 3600_000
        store.close()


@pytest.mark.parametrize("timeout", [None, 60, 3600, 7200])
def test_an_end_is_known_for_longer_than_the_broker_takes_to_redeliver(timeout):
    """An ended delivery is known beyond the visibility timeout, after which kombu looks for messages every 100 s, and
    the message waits in the queue.
    """
    app = Celery("remembering", set_as_current=False)
    app.conf.broker_transport_options = {"visibility_timeout": timeout} if timeout else {}

    @app.task(name=f"remembering-{timeout}")
    @single_instance_task
    def task(): ...

    call = task.redlock.new_call(task, "a", Message("a", new_delivery_id(), "a"))
    assert call.done_ttl >= max(timeout or 0, 3600) + 100 + 600


@pytest.mark.parametrize("name", ["a", "settle:17", "{a}{b", "a}b", "ä"])
def test_on_a_cluster_the_set_is_in_the_slot_of_the_lock(name):
    """On a Cluster the set of ended deliveries is in the slot of the lock."""
    key = f"redlock:{{{name}}}".encode()
    mark = ended_mark(key, new_delivery_id(), cluster=True)
    assert key_slot(mark.key) == key_slot(key)
    assert len({ended_mark(key, f"{hour * 3600:08x}{5:016x}", cluster=True).key for hour in range(1, 5)}) == 4


def test_ids_that_differ_have_numbers_that_differ():
    """Different deliveries have different 64-bit numbers."""
    marks = {ended_mark(b"redlock:{a}", new_delivery_id(), cluster=False) for _ in range(1000)}
    assert len(marks) == 1000
    assert all(-(2**63) <= int(mark.number) < 2**63 for mark in marks)
    assert (
        len({ended_mark(b"redlock:{a}", each, False).key for each in ("a-1", "a-2", "0" * 24, "f" * 40, "+1" * 12)})
        == 5
    )


def test_memory_forgets_what_has_lapsed():
    """The in-memory store deletes expired entries of ended deliveries."""
    backend = LocMemBackend("ended")
    player = Player(MemoryStore(backend), "while_executing", remember=0.001)
    for number in range(50):
        player.play("start", "a", str(number), run=number)
        player.play("end", "a", str(number), run=number)
        time.sleep(0.002)
    assert len(backend.tasks.past.ended._due) < 25


def test_an_eager_call_leaves_nothing(tasks, seen, settings):
    """An eager call leaves no entry, because no broker can redeliver it."""
    settings.REDLOCK = {"default": {"BACKEND": "django_redlock.backends.locmem.LocMemBackend", "LOCATION": seen.name}}
    assert tasks.executed.apply((seen.name,)).get() == seen.name
    table = locks["default"].tasks
    assert (table.locks, table.past.ended._due) == ({}, {})
