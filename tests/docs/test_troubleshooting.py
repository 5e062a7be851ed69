"""The words in the table of ``LockUnavailable`` are those of its messages, on real servers."""

import contextlib
import re

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.errors import LockUnavailable
from tests.docs.pages import DOCS
from tests.support.replicas import Replicated
from tests.support.tls import TlsRedis

PAGE = DOCS / "howto" / "troubleshooting.rst"


def redis(url, **options):
    return RedisBackend(url, **{"node_timeout": 30} | options)


def on_a_hung_server(server):
    server.pause()
    return redis(server.url, node_timeout=0.1)


def as_user(server, user, *rules):
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">secret", *rules)
    return redis(server.url.replace("redis://", f"redis://{user}@"))


def configured(server, option, value):
    with server.client() as admin:
        admin.config_set(option, value)
    return redis(server.url)


def with_another_max_ttl(server):
    redis(server.url, quarantine=True, max_ttl=60).arm()
    return redis(server.url, quarantine=True, max_ttl=61)


def without_free_connections(server):
    backend = redis(f"{server.url}?max_connections=2", node_timeout=0.3)
    backend.in_use = [backend.nodes[0].known_pool(None).checkout() for _ in range(2)]
    return backend


def on_replicas(group, **options):
    backend = ReplicaBackend(group.primary.url, node_timeout=30, **options)
    backend.arm()
    return backend


def on_hung_replicas(group):
    backend = on_replicas(group, min_replicas=1, wait_timeout=0.1, lag=600)
    for replica in group.replicas:
        replica.pause()
    return backend


# What a message says, and a backend whose acquire() fails so: on a server of its own, with replicas, or with TLS.
ON_ONE = {
    "Connection refused": lambda _server: RedisBackend("redis://127.0.0.1:1/0"),
    "no reply in time": on_a_hung_server,
    "invalid username-password pair": lambda server: as_user(server, "nobody:secret"),
    "it requires a password": lambda server: configured(server, "requirepass", "secret"),
    "no permissions": lambda server: as_user(server, "reader:secret", "~*", "+ping"),
    "used memory > 'maxmemory'": lambda server: configured(server, "maxmemory", 1),
    "cluster support disabled": lambda server: redis(f"redis+cluster://127.0.0.1:{server.port}"),
    "unknown command 'SENTINEL'": lambda server: redis(f"redis+sentinel://127.0.0.1:{server.port}/shop/0"),
    "DB index is out of range": lambda server: redis(f"redis://127.0.0.1:{server.port}/1000"),
    "in quarantine": lambda server: redis(server.url, quarantine=True),
    "its clients use max_ttl=": with_another_max_ttl,
    "connections are in use": without_free_connections,
    "NOREPLICAS": lambda server: configured(server, "min-replicas-to-write", 1),
}
ON_REPLICAS = {
    "replicas that must confirm": lambda group: on_replicas(group, min_replicas=2, wait_timeout=1),
    "replicas confirmed within": on_hung_replicas,
    "read only replica": lambda group: redis(group.replicas[0].url),
}
ON_TLS = {"certificate verify failed": lambda server: redis(server.url.partition("?")[0])}
CASES = ON_ONE | ON_REPLICAS | ON_TLS


@pytest.mark.parametrize("words", CASES)
def test_message(words, start, own_redis):
    """The message has these words, and no password."""
    server = own_redis() if words in ON_ONE else start(TlsRedis() if words in ON_TLS else Replicated())
    backend = CASES[words](server)
    with contextlib.closing(backend), pytest.raises(LockUnavailable) as caught:
        backend.lock("x").acquire(blocking=False)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_every_word_of_the_table():
    """The first column of the table has the words that are tested here, and no others."""
    section = PAGE.read_text().partition("``LockUnavailable``\n---")[2].partition("\n\nViews under")[0]
    rows = re.findall(r"^   \* - (.*(?:\n       .*)*)", section, re.MULTILINE)[1:]
    assert sorted(re.findall(r"``(.+?)``", " ".join(rows))) == sorted([*CASES, "OOM"])
