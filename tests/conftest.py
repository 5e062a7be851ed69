"""Servers for tests. One of each kind runs for the session, and is up and empty at the start of every test.

Tests that reconfigure a Redis, or need several, start their own: `own_redis()`, or `start(...)` with anything from
`tests.support`, as in `start(Replicated(2)).primary`. Fixtures that live longer than a test
ask for `running(RedisServer)`, and clean up themselves. What is not installed skips its tests, and fails them where it
is required: `--require-servers` or REDLOCK_REQUIRE_SERVERS=1.
"""

import contextlib
import functools
import gc
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from django_redlock import locks
from django_redlock.backends.redis import RedisBackend, RedisBaseBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.core.locks import local_queue
from django_redlock.core.primitives import base
from django_redlock.history.event_queue import event_queue
from django_redlock.testing.conformance.harness.clients import AsyncClient, Client, SyncClient
from testproject.redis_server import RedisServer
from tests import tiers
from tests.support import service
from tests.support.cluster import Cluster
from tests.support.group import Group, ThreeNodes
from tests.support.locks import SHORT, memory_entry, redis_entry
from tests.support.mariadb import MariaDB
from tests.support.postgres import Postgres
from tests.support.proxy import Proxy
from tests.support.rabbitmq import RabbitMQ
from tests.support.replicas import Replicated
from tests.support.sentinel import Sentinel
from tests.support.service import Service, revive
from tests.support.tls import TlsRedis
from tests.support.zookeeper import SHARED, Ensemble, ZooKeeper

T = TypeVar("T")
os.environ.setdefault("TESTPROJECT_NODE_TIMEOUT", "5")  # of processes that tests start: the machine may be busy
# What each of `--tier` runs; `test` holds what is quick, and `rest` is what `test` leaves out.
TIERS = {"quick": range(1), "test": range(2), "rest": range(2, 3), "all": range(3)}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-servers", action="store_true", help="what is not installed is a failure, not a skip")
    parser.addoption("--tier", choices=TIERS, default="all", help="which tests: see tests/tiers.py")


def pytest_configure(config: pytest.Config) -> None:
    service.packages_allowed = tiers.Tier.REST in TIERS[config.getoption("--tier")]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.ignored(collection_path, TIERS[config.getoption("--tier")]) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without the garbage collector, which would walk through the growing list of tests again and again.

    Tests last for the session, so the collector skips them later, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.select(config, items, TIERS[config.getoption("--tier")])


@contextlib.contextmanager
def _starter(config: pytest.Config) -> Iterator[Callable[[AbstractContextManager[T]], T]]:
    with contextlib.ExitStack() as ends:

        def start(server: AbstractContextManager[T]) -> T:
            try:
                return ends.enter_context(server)
            except FileNotFoundError as missing:
                required = config.getoption("--require-servers") or os.environ.get("REDLOCK_REQUIRE_SERVERS") == "1"
                (pytest.fail if required else pytest.skip)(str(missing))

        yield start


@pytest.fixture(scope="session")
def running(pytestconfig):
    """`running(kind)`: the one server of that kind that the session shares. It is up, even if a test has killed it."""
    with _starter(pytestconfig) as start:
        started = functools.cache(lambda kind: start(kind()))

        def up(kind):
            server = started(kind)
            if isinstance(server, RedisServer | Service):  # a group decides itself which of its servers run
                revive(server)
            event_queue.flush()  # otherwise the events of earlier tests are written later, where this one has emptied
            return server

        yield up


@pytest.fixture
def start(pytestconfig):
    """`start(server)`: start any server, proxy or worker of `tests.support`, which ends with the test."""
    with _starter(pytestconfig) as start:
        yield start


@pytest.fixture
def own_redis(start) -> Callable[..., RedisServer]:
    """`own_redis(*extra_args, **options)`: a separate Redis that the test may kill or configure."""
    return lambda *extra_args, **options: start(Group([RedisServer(*extra_args, **options)])).servers[0]


@pytest.fixture
def own_nodes(start) -> Callable[[int], list[RedisServer]]:
    """`own_nodes(count)`: so many separate Redis servers, as `own_redis()`."""
    return lambda count: start(Group(RedisServer() for _ in range(count))).servers


@pytest.fixture
def backend_at() -> Iterator[Callable[..., RedisBaseBackend]]:
    """`backend_at(location, kind=RedisBackend, **options)`: a backend, which is closed at the end of the test."""
    with contextlib.ExitStack() as ends:

        def make(location, kind=RedisBackend, **options):
            return ends.enter_context(contextlib.closing(kind(location, **{"node_timeout": 10, **options})))

        yield make


def _emptied(server: RedisServer) -> Any:
    revive(server)
    event_queue.flush()  # otherwise the events of earlier tests are written later
    with server.client() as client:
        client.flushall()
    return server


@pytest.fixture
def redis_server(running) -> RedisServer:
    """A Redis."""
    return _emptied(running(RedisServer))


@pytest.fixture
def redis_url(redis_server) -> str:
    """The URL of `redis_server`."""
    return redis_server.url


@pytest.fixture
def stores(settings, redis_url, unique):
    """`locks`: `default` on a real Redis, and `memory` in this process."""
    settings.REDLOCK = {"default": redis_entry(redis_url), "memory": memory_entry(unique)}
    yield locks
    event_queue.flush()  # nothing of this test is to be written down during another
    locks.reset()


@pytest.fixture
def tls_redis(running) -> TlsRedis:
    """A Redis with TLS."""
    return _emptied(running(TlsRedis))


@pytest.fixture
def sentinel(running) -> Sentinel:
    """A master with two replicas and three Sentinels. Tests may kill them and fail over."""
    group = running(Sentinel)
    group.heal()
    _emptied(group.master)
    return group


@pytest.fixture
def cluster(running) -> Cluster:
    """A Redis Cluster of three masters. Tests may kill them and move slots."""
    cluster = running(Cluster)
    cluster.heal()
    for node in cluster.nodes:
        _emptied(node)
    return cluster


@pytest.fixture
def servers(running) -> Iterator[list[RedisServer]]:
    """Three nodes that are up and empty."""
    servers = running(ThreeNodes).servers
    for server in servers:
        _emptied(server)
    yield servers
    for server in servers:
        revive(server)


@pytest.fixture
def proxies(start, servers) -> list[Proxy]:
    """A proxy in front of each of the `servers`."""
    return [start(Proxy(server.url)) for server in servers]


@pytest.fixture
def two(start) -> Replicated:
    """A primary with two replicas, in service for locks with `SHORT` leases."""
    group = start(Replicated(2))
    assert list(ReplicaBackend(group.primary.url, **SHORT).arm().values()) == ["armed"]
    return group


@pytest.fixture
def proxy(start, redis_server) -> Proxy:
    """A proxy in front of `redis_server`."""
    return start(Proxy(redis_server.url))


@pytest.fixture
def zookeeper(running) -> ZooKeeper | Ensemble:
    """A ZooKeeper that is up, with the data of other tests. Use `unique` names."""
    server = running(SHARED)
    revive(server)
    return server


@pytest.fixture
def rabbitmq(running) -> RabbitMQ:
    """A RabbitMQ broker that is up, with the queues of other tests. Use `unique` names."""
    broker = running(RabbitMQ)
    revive(broker)
    return broker


@pytest.fixture
def postgres(running) -> Postgres:
    """A PostgreSQL that is up, with the databases of other tests. Create a database with a `unique` name."""
    server = running(Postgres)
    revive(server)
    return server


@pytest.fixture
def mariadb(running) -> MariaDB:
    """A MariaDB that is up. Create a database with a `unique` name."""
    pytest.importorskip("pymysql")
    return running(MariaDB)


@pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
def client_of(request) -> Iterator[Callable[[RedisBaseBackend], Client]]:
    """`client_of(backend)`: a client of the conformance suite; each test runs with a blocking and an asyncio one."""
    with contextlib.ExitStack() as ends:

        def client(backend: RedisBaseBackend) -> Client:
            client = request.param(backend)
            ends.callback(client.close)
            return client

        yield client


@pytest.fixture
def woken_only(monkeypatch) -> None:
    """Waiters do not look by themselves for a minute, so that a test can allow a wake-up 20 seconds."""
    monkeypatch.setattr(base, "MAX_BLOCK", 60.0)
    monkeypatch.setattr(base, "MAX_BLOCK_IN_QUEUE", 60.0)
    monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 60.0)


@pytest.fixture
def unique() -> str:
    """A unique name."""
    return f"test-{secrets.token_hex(6)}"
