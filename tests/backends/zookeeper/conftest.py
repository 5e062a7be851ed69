"""Backends and clients of a real ZooKeeper."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

from django_redlock.backends.zookeeper import ZooKeeperBackend
from tests.support.zookeeper import ZooKeeper, end_sessions


@pytest.fixture
def connected():
    """`connected(hosts, **options)`: a backend that is closed at the end of the test."""
    backends = []

    def connect(hosts, **options):
        options = {"session_timeout": 30, "node_timeout": 5, "connect_timeout": 20} | options
        backends.append(ZooKeeperBackend(hosts, **options))
        return backends[-1]

    yield connect
    end_sessions(backends)


@pytest.fixture
def backend(connected, zookeeper):
    return connected(zookeeper.hosts)


@pytest.fixture
def other(connected, zookeeper):
    return connected(zookeeper.hosts)


@pytest.fixture
def own(start):
    """A separate server that tests kill and pause."""
    return start(ZooKeeper())


@pytest.fixture
def witness(zookeeper):
    client = KazooClient(zookeeper.hosts, timeout=30)
    client.start(60)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def pool():
    with ThreadPoolExecutor() as pool:
        yield pool
