"""What is kept of deliveries that have ended: little, for long enough, and in the slot of the lock."""

import time

import pytest
from celery import Celery
from redis.crc import key_slot

from django_redlock.backends.redis import RedisBackend
from django_redlock.celery import single_instance_task
from django_redlock.celery.messages import Message
from django_redlock.core.keys import keys_for
from django_redlock.single_instance.call import MODES, TaskCall, new_delivery_id
from django_redlock.single_instance.records import ended_mark
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
            call = player.call("a", "")._replace(delivery_id=delivery)
            player.call = lambda *_, call=call: call
            assert player.play("start", "a", "") == "granted"
            assert player.play("end", "a", "") in (0, 1)
        (key,) = set(client.keys("redlock:ended:*")) - before
        assert client.memory_usage(key, samples=0) < 40 * DELIVERIES
        assert 3590_000 < client.pttl(key) <= 3600_000
        store.close()


@pytest.mark.parametrize("timeout", [None, 60, 3600, 7200])
def test_an_end_is_known_for_longer_than_the_broker_takes_to_redeliver(timeout):
    """Kombu looks for messages every 100 s after the visibility timeout, and a message waits in the queue."""
    app = Celery("remembering", set_as_current=False)
    app.conf.broker_transport_options = {"visibility_timeout": timeout} if timeout else {}

    @app.task(name=f"remembering-{timeout}")
    @single_instance_task
    def task(): ...

    call = task.redlock.call_of(task, Message("a", new_delivery_id(), "a"))
    assert call.done_ttl >= max(timeout or 0, 3600) + 100 + 600


@pytest.mark.parametrize("name", ["a", "settle:17", "{a}{b", "a}b", "ä"])
def test_on_a_cluster_the_set_is_in_the_slot_of_the_lock(name):
    keys = keys_for(b"redlock", name.encode())
    call = TaskCall(name, keys, "t", "a", new_delivery_id(), MODES["while_executing"], 1, 60.0, 60.0, cluster=True)
    ended, _ = ended_mark(call)
    assert key_slot(ended) == key_slot(keys.lock)
    hours = [call._replace(delivery_id=f"{hour * 3600:08x}{5:016x}") for hour in range(1, 5)]
    assert len({ended_mark(each)[0] for each in hours}) == 4
