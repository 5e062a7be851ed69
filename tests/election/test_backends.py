"""An election on each kind of store."""

import pytest

from django_redlock.backends.dummy import DummyBackend
from django_redlock.backends.locmem import LocMemBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.backends.zookeeper import ZooKeeperBackend
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.replicas import Replicated

STORES = ["locmem", "timestamp", "redlock", "replica", "zookeeper"]


@pytest.fixture
def store(request, unique):
    """A store of the kind that the test is parametrized with."""
    if request.param == "locmem":
        made = LocMemBackend(unique)
    elif request.param == "timestamp":
        made = TimestampBackend(request.getfixturevalue("redis_url"), node_timeout=5)
    elif request.param == "zookeeper":
        server = request.getfixturevalue("zookeeper")
        made = ZooKeeperBackend(server.hosts, session_timeout=30, node_timeout=10, connect_timeout=10)
    elif request.param == "redlock":
        group = request.getfixturevalue("start")(Group(RedisServer() for _ in range(3)))
        made = RedlockBackend([server.url for server in group.servers], node_timeout=5)
        made.arm()
    else:
        made = ReplicaBackend(request.getfixturevalue("start")(Replicated()).primary.url, node_timeout=5)
        made.arm()
    yield made
    made.close()


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_one_after_the_other(store, candidate, unique):
    first = candidate(store, unique)
    first.expect("elected")
    second = candidate(store, unique)
    assert second.quiet()
    first.end()
    first.expect("lost")
    second.expect("elected")
    assert second.leader.leading


def test_dummy(candidate, unique):
    for _ in range(2):
        candidate(DummyBackend(), unique).expect("elected")
