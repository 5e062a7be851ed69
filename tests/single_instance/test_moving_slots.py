"""Records of tasks in a slot that a Redis Cluster moves."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.core.flow.drivers import drive
from django_redlock.single_instance.records import BODY, RunningBody, cancel, ended_mark
from tests.single_instance.player import Player
from tests.support.cluster import ask


@pytest.mark.parametrize("moved", [False, True], ids=["there", "moved"])
@pytest.mark.parametrize("end", ["end", "again", "cancel"])
def test_an_end_while_its_slot_moves(cluster, start, moved, end):
    """A task whose record's slot is being moved can end, be revoked or be queued again as soon as it has moved."""
    store = start(contextlib.closing(RedisBackend(cluster.url, node_timeout=5)))
    player = Player(store, "until_executed")
    call, key = player.call("a", "a-1"), player.keys.lock.decode()
    player.play("submit", "a", "1")
    if end != "cancel":
        player.play("start", "a", "1")
    source = cluster.owner(key)
    target = next(node for node in cluster.nodes if node is not source)
    with cluster.migrating(key, target), ThreadPoolExecutor(1) as pool:
        if moved:
            ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", key)
        if end in ("end", "again"):
            claim = player.claim("a", 0)._replace(record=RunningBody(call, "ended" if end == "end" else "requeued"))
            flow = store.algorithm.release(BODY, claim)
        else:
            flow = cancel(call)
        moving = pool.submit(cluster.complete_move, key, target)
        assert drive(flow, store.perform)
        moving.result()
    with cluster.client() as client:
        assert client.sismember(*ended_mark(call)) == (end == "end")
        assert client.hkeys(key) == ([b"a"] if end == "again" else [])
