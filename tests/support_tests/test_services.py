"""Servers other than plain Redis, and machines on which they are missing."""

import contextlib
import threading
import time
from pathlib import Path

import psycopg
import pytest
import redis
from kazoo.client import KazooClient
from kombu import Connection

from testproject.redis_server import RedisServer
from tests.support import service
from tests.support.clocked import ClockedRedis
from tests.support.postgres import USER
from tests.support.tls import TlsRedis


class NotInstalled(contextlib.AbstractContextManager):
    def __enter__(self):
        raise FileNotFoundError("apt install something")

    def __exit__(self, *exc):
        pass


@pytest.mark.parametrize(("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_what_is_not_installed(start, monkeypatch, pytestconfig, required, outcome):
    """A missing server skips its tests, or fails them where it is required, and the message says what to install."""
    monkeypatch.setattr(pytestconfig.option, "require_servers", False)
    monkeypatch.setenv("REDLOCK_REQUIRE_SERVERS", required)
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="apt install something") as ended:
        start(NotInstalled())
    assert ended.type is outcome


def test_package_of_the_last_tier(start, monkeypatch):
    """A test of the tiers before `rest` that needs a system package fails, whether the package is installed or not."""
    monkeypatch.setattr(service, "packages_allowed", False)
    with pytest.raises(AssertionError, match="needs the package openssl"):
        start(TlsRedis())


@pytest.mark.parametrize("kind", [RedisServer, TlsRedis])
@pytest.mark.parametrize("end", ["kill", "stop", "pause"])
def test_shared_server_is_up(running, kind, end):
    """A shared server that a test has killed, stopped or paused is up for the next test that asks for it."""
    getattr(running(kind), end)()
    with running(kind).client(socket_timeout=60) as client:
        assert client.ping()


def test_a_clock_that_is_set(start):
    """A clock that was set applies at once and over a restart, and leaves timers and shared memory alone."""
    server = start(ClockedRedis())
    shared = Path("/", "dev", "shm")
    assert not list(shared.glob(f"*faketime*_{server.pid}"))
    with server.client() as client:
        for ahead in (3600, -3600):
            server.set_clock(ahead)
            assert abs(client.time()[0] - time.time() - ahead) < 60
        server.restart()
        assert abs(client.time()[0] - time.time() + 3600) < 60
        assert client.blpop("nothing", 0.1) is None


def test_redis_speaks_tls_only(tls_redis):
    """The certificate of the TLS server is trusted by its URL only, and connections without TLS fail."""
    with redis.Redis.from_url(tls_redis.url) as client:
        assert client.ping()
    for options in ({"ssl": True}, {}):
        client = redis.Redis("127.0.0.1", tls_redis.tls_port, retry=None, **options)
        with client, pytest.raises(redis.ConnectionError):
            client.ping()


@pytest.fixture
def connect(zookeeper):
    clients = []

    def connect(**options):
        clients.append(KazooClient(zookeeper.hosts, **options))
        clients[-1].start(60)
        return clients[-1]

    yield connect
    for client in clients:
        client.stop()
        client.close()


def test_zookeeper_ends_a_session(zookeeper, connect, unique):
    """The ephemeral nodes of an expired session are gone, and its client is notified."""
    client, witness = connect(), connect()
    lost = threading.Event()
    client.add_listener(lambda state: lost.set() if state == "LOST" else None)
    client.create(unique, ephemeral=True)
    assert witness.exists(unique)
    zookeeper.expire(client)
    assert not witness.exists(unique)
    assert lost.wait(60)


def test_zookeeper_survives_a_kill(zookeeper, connect, unique):
    """Data of ZooKeeper survives a `kill -9`."""
    connect().create(unique, b"value")
    zookeeper.kill()
    zookeeper.start()
    assert connect().get(unique)[0] == b"value"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_rabbitmq_keeps_durable_messages(rabbitmq, unique, end):
    """A confirmed message survives a stop and a kill of the broker."""
    confirmed = {"confirm_publish": True}
    with Connection(rabbitmq.url, transport_options=confirmed) as connection, connection.SimpleQueue(unique) as queue:
        queue.put("message")
    getattr(rabbitmq, end)()
    rabbitmq.start()
    with Connection(rabbitmq.url) as connection, connection.SimpleQueue(unique) as queue:
        message = queue.get(timeout=60)
        message.ack()
        assert message.payload == "message"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_postgres_keeps_what_was_committed(postgres, unique, end):
    """A committed row survives a stop and a kill of the server."""
    place = {"host": "127.0.0.1", "port": postgres.port, "user": USER, "autocommit": True}
    with psycopg.connect(**place) as connection:
        connection.execute(f'CREATE TABLE "{unique}" AS SELECT 42 AS answer')
    getattr(postgres, end)()
    postgres.start()
    with psycopg.connect(**place) as connection:
        assert connection.execute(f'TABLE "{unique}"').fetchall() == [(42,)]
        connection.execute(f'DROP TABLE "{unique}"')
