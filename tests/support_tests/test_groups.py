"""Groups of Redis servers that fail over, split and move."""

import contextlib

import pytest
import redis
from redis.sentinel import MasterNotFoundError
from redis.sentinel import Sentinel as SentinelClient

from tests.support.cluster import ask
from tests.support.replicas import Replicated, role
from tests.support.service import poll


@pytest.fixture
def replicated(start):
    return start(Replicated(2))


def test_sentinels_promote_another(sentinel):
    """An ordered failover promotes a replica with the data, and redis-py finds it."""
    former = sentinel.master
    with former.client() as client:
        client.set("key", "value")
        client.wait(2, 20_000)
    master = sentinel.failover()
    assert master is not former
    hosts = [("127.0.0.1", each.port) for each in sentinel.sentinels]
    assert sentinel.url == f"redis+sentinel://{','.join(f'{host}:{port}' for host, port in hosts)}/locks/0"

    def found():
        with contextlib.suppress(MasterNotFoundError):
            return SentinelClient(hosts).discover_master("locks") == ("127.0.0.1", sentinel.master.port)
        return False

    poll(found, timeout=60, what="the master")  # a stalled one may have been deposed meanwhile
    with SentinelClient(hosts).master_for("locks") as client:
        assert client.get("key") == b"value"


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_sentinels_depose_a_master_that_is_gone(sentinel, fault):
    """A killed or paused master is replaced, and is a replica when it comes back."""
    former = sentinel.master
    getattr(former, fault)()
    assert sentinel.wait_for_new_master(former) is not former
    sentinel.heal()
    assert former in sentinel.replicas
    one_master = ["master", "slave", "slave"]
    poll(lambda: sorted(map(role, sentinel.servers)) == one_master, timeout=60, what="one master")


def redirection(node, key):
    """Return the redirection of a reply: ASK or MOVED."""
    with pytest.raises(redis.ResponseError) as error:
        ask(node, "GET", key)
    return {"AskError": "ASK", "MovedError": "MOVED"}.get(error.typename) or str(error.value).split()[0]


def test_a_slot_on_its_way(cluster):
    """While a slot migrates the old node serves its keys and answers ASK for others; afterwards it answers MOVED."""
    client = cluster.client()
    client.set("{slot}here", "1", ex=100)
    source = cluster.owner("{slot}here")
    to = next(node for node in cluster.nodes if node is not source)
    with cluster.migrating("{slot}here", to):
        assert ask(source, "GET", "{slot}here") == "1"
        assert redirection(source, "{slot}elsewhere") == "ASK"
        client.set("{slot}elsewhere", "2")
        assert client.get("{slot}elsewhere") == b"2"
    cluster.move_slot("{slot}here", to)
    assert redirection(source, "{slot}here") == "MOVED"
    assert cluster.owner("{slot}here") is to
    assert (client.get("{slot}here"), client.get("{slot}elsewhere")) == (b"1", b"2")
    assert client.ttl("{slot}here") > 0
    client.close()


def test_a_cluster_heals(cluster):
    """A cluster with a killed node does not serve its keys, and serves all after `heal()`."""
    node = cluster.owner("key")
    node.kill()
    with contextlib.closing(redis.Redis(port=node.port, retry=None)) as client, pytest.raises(redis.ConnectionError):
        client.get("key")
    cluster.heal()
    assert cluster.owner("key") is node
    assert ask(node, "SET", "key", "value")


def test_a_replica_that_is_cut_off(replicated):
    """A replica that is cut off acknowledges nothing, and catches up when it is back."""
    far, near = replicated.replicas
    with replicated.primary.client() as client:
        client.set("key", "before")
        assert client.wait(2, 20_000) == 2
        replicated.cut_off(far)
        client.set("key", "after")
        assert client.wait(1, 20_000) == 1
        assert client.wait(2, 100) == 1
    assert (ask(far, "GET", "key"), ask(near, "GET", "key")) == ("before", "after")
    replicated.rejoin(far)
    assert ask(far, "GET", "key") == "after"


def test_two_primaries(replicated):
    """After a manual promotion both are primaries with separate data, until the former one follows."""
    far, near = replicated.replicas
    replicated.cut_off(far)
    former = replicated.promote(far)
    assert (role(former), role(far), role(near)) == ("master", "master", "slave")
    ask(former, "SET", "key", "former")
    ask(far, "SET", "key", "promoted")
    replicated.follow(near)
    replicated.follow(former)
    assert [ask(server, "GET", "key") for server in (former, near)] == ["promoted", "promoted"]
    with replicated.primary.client() as client:
        client.set("key", "again")
        assert client.wait(2, 20_000) == 2
