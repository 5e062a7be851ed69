"""``health()`` acquires a lock as a probe, and reports a failure, because INFO does not show every problem."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.timestamp import TimestampBackend
from tests.support.cluster import Cluster

USERS = {
    "no scripts": "~redlock:* +@all -@scripting",
    "other keys": "~locks:* +@all",
    "no writes": "~redlock:* +@all -@write",
}


def as_user(server, rights):
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "somebody", "on", ">secret", "resetkeys", *rights.split())
    return server.url.replace("://", "://somebody:secret@")


PROBLEMS = [
    *((kind, rights, {}, "grants no lock: ") for kind in (RedisBackend, TimestampBackend) for rights in USERS.values()),
    (RedisBackend, "~redlock:* +@all -info", {"quarantine": True}, "its marker can't be read: "),
]


@pytest.mark.parametrize(("backend", "rights", "options", "problem"), PROBLEMS)
def test_a_user_without_rights(own_redis, client_of, backend, rights, options, problem):
    """health() reports a user who may read the state of the server and may not acquire locks."""
    client = client_of(backend(as_user(own_redis(), rights), node_timeout=5, **options))
    (row,) = client.health()
    assert not row["ok"]
    assert problem in row["problems"][0]


def test_a_user_without_info(own_redis, client_of):
    """A server that refuses INFO and grants locks is healthy, with a warning that names INFO."""
    (row,) = client_of(RedisBackend(as_user(own_redis(), "~redlock:* +@all -info"), node_timeout=5)).health()
    assert (row["ok"], row["problems"]) == (True, [])
    assert "refuses INFO" in row["warnings"][0]


def test_one_of_several_nodes(own_redis, client_of):
    """health() probes each node by itself and names the one that grants no lock."""
    servers = [own_redis() for _ in range(3)]
    urls = [servers[0].url, as_user(servers[1], USERS["other keys"]), servers[2].url]
    client = client_of(RedlockBackend(urls, node_timeout=5, quarantine=False))
    assert [row["ok"] for row in client.health()] == [True, False, True]
    assert client.lock("x").acquire()


def test_nothing_is_left(own_redis, client_of):
    """health() leaves no key, except the marker of a quarantine."""
    server = own_redis()
    for quarantine in False, True:
        (row,) = client_of(RedisBackend(server.url, node_timeout=5, quarantine=quarantine)).health()
        assert row["ok"]
    with server.client() as admin:
        assert admin.keys() == [b"redlock:marker"]
        assert admin.info("commandstats")["cmdstat_set"]["calls"] == 3, "nothing was tried"


def test_each_server_of_a_cluster(start, client_of):
    """health() probes each server of a Cluster with a name in its slots, and reports the one that is out of memory."""
    cluster = start(Cluster())
    assert all(row["ok"] for row in client_of(RedisBackend(cluster.url, node_timeout=5)).health())
    with cluster.servers[1].client() as admin:
        admin.config_set("maxmemory", 1)
    full, *others = sorted(client_of(RedisBackend(cluster.url, node_timeout=5)).health(), key=lambda row: row["ok"])
    assert (full["ok"], [row["ok"] for row in others]) == (False, [True, True])
    assert "grants no lock" in full["problems"][0]
    assert "memory" in full["problems"][0]
