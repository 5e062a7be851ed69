"""The words in the table of ``LockUnavailable`` are those of its messages, on real servers."""

import contextlib
import re

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.docs.pages import DOCS
from tests.support.replicas import Replicated

PAGE = DOCS / "howto" / "troubleshooting.rst"
CASES = {}


def says(*words):
    """`@says(words)`: the decorated context manager yields a backend whose acquire() fails with these words."""

    def add(case):
        CASES.update(dict.fromkeys(words, contextlib.contextmanager(case)))
        return case

    return add


@says("Connection refused")
def refused(_servers):
    yield RedisBackend("redis://127.0.0.1:1/0")


@says("no reply in time")
def hangs(servers):
    server = servers.redis()
    server.pause()
    yield RedisBackend(server.url, node_timeout=0.1)


@says("invalid username-password pair")
def wrong_password(servers):
    yield RedisBackend(with_user(servers.redis(), "nobody:secret"), node_timeout=30)


@says("it requires a password")
def no_password(servers):
    server = servers.redis()
    with server.client() as admin:
        admin.config_set("requirepass", "secret")
        yield RedisBackend(server.url, node_timeout=30)
        admin.config_set("requirepass", "")


@says("no permissions")
def forbidden(servers):
    server = servers.redis()
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+ping")
    yield RedisBackend(with_user(server, "reader:secret"), node_timeout=30)


def with_user(server, user):
    return server.url.replace("redis://", f"redis://{user}@")


@says("cluster support disabled")
def no_cluster(servers):
    yield RedisBackend(servers.redis().url.replace("redis://", "redis+cluster://").rpartition("/")[0], node_timeout=30)


@says("unknown command 'SENTINEL'")
def no_sentinel(servers):
    address = servers.redis().url.removeprefix("redis://").rpartition("/")[0]
    yield RedisBackend(f"redis+sentinel://{address}/shop/0", node_timeout=30)


@says("DB index is out of range")
def no_such_database(servers):
    yield RedisBackend(servers.redis().url.rpartition("/")[0] + "/1000", node_timeout=30)


@says("in quarantine")
def in_quarantine(servers):
    yield RedisBackend(servers.redis().url, node_timeout=30, quarantine=True)


@says("its clients use max_ttl=")
def another_max_ttl(servers):
    url = servers.redis().url
    RedisBackend(url, node_timeout=30, quarantine=True, max_ttl=60).arm()
    yield RedisBackend(url, node_timeout=30, quarantine=True, max_ttl=61)


@says("connections are in use")
def few_connections(servers):
    backend = RedisBackend(f"{servers.redis().url}?max_connections=2", node_timeout=0.3)
    pool = backend.nodes[0].known_pool(None)
    connections = [pool.checkout(), pool.checkout()]
    yield backend
    for connection in connections:
        pool.discard(connection)


@says("replicas that must confirm")
def replicas_are_missing(servers):
    backend = ReplicaBackend(servers.start(Replicated()).primary.url, node_timeout=30, min_replicas=2, wait_timeout=1)
    backend.arm()
    yield backend


@says("replicas confirmed within")
def replicas_hang(servers):
    group = servers.start(Replicated())
    backend = ReplicaBackend(group.primary.url, node_timeout=30, min_replicas=1, wait_timeout=0.1, lag=600)
    backend.arm()
    for replica in group.replicas:
        replica.pause()
    yield backend


@says("NOREPLICAS")
def redis_wants_replicas(servers):
    server = servers.redis()
    with server.client() as admin:
        admin.config_set("min-replicas-to-write", 1)
    yield RedisBackend(server.url, node_timeout=30)


@says("read only replica")
def replica(servers):
    yield RedisBackend(servers.start(Replicated()).replicas[0].url, node_timeout=30)


class Servers:
    def __init__(self, start, redis, settings):
        self.start = start
        self.redis = redis
        self.settings = settings


@pytest.fixture
def servers(start, own_redis, settings):
    return Servers(start, own_redis, settings)


@pytest.mark.parametrize("words", CASES)
def test_message(words, servers):
    """The message has these words, and no password."""
    with CASES[words](servers) as backend, pytest.raises(LockUnavailable) as caught:
        backend.lock("x").acquire(blocking=False)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_every_word_of_the_table():
    """The first column of the table has the words that are tested here, and no others."""
    section = PAGE.read_text().partition("``LockUnavailable``\n---")[2].partition("\n\nViews under")[0]
    rows = re.findall(r"^   \* - (.*(?:\n       .*)*)", section, re.MULTILINE)[1:]
    assert sorted(re.findall(r"``(.+?)``", " ".join(rows))) == sorted(CASES)
