"""Backends on separate nodes, which end with the test."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_redlock.backends.redis_base import RedisBaseBackend
from django_redlock.backends.replica import ReplicaBackend
from django_redlock.core.locks import local_queue
from django_redlock.core.primitives import base
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import AsyncClient, Client, SyncClient
from testproject.redis_server import RedisServer
from tests.support.group import Group
from tests.support.replicas import Replicated
from tests.support.service import poll, revive

# Seconds: as short as a machine can stand on which everything takes ten times as long as it should.
SHORT = {"ttl": 4, "max_ttl": 4, "node_timeout": 2}


@pytest.fixture(params=[SyncClient, AsyncClient], ids=["sync", "async"])
def client_of(request) -> Iterator[Callable[[RedisBaseBackend], Client]]:
    """`client_of(backend)`: a client of the conformance suite; each test runs with a blocking and an asyncio one."""
    clients: list[Any] = []

    def client(backend: RedisBaseBackend) -> Client:
        clients.append(request.param(backend))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


def held_by_all(lock: Any, holding: Callable[[], bool]) -> None:
    """Acquire the lock on all nodes, as ``holding()`` says. A node that is not connected yet does not vote later."""

    def acquired() -> bool:
        with contextlib.suppress(LockUnavailable):
            assert lock.acquire(timeout=20)
            with contextlib.suppress(TimeoutError):
                poll(holding, timeout=3, what="all votes")
                return True
            lock.release()
        return False

    poll(acquired, timeout=60, what="all votes")


@pytest.fixture
def two(start) -> Replicated:
    """A primary with two replicas, in service for locks with `SHORT` leases."""
    group = start(Replicated(2))
    assert list(ReplicaBackend(group.primary.url, **SHORT).arm().values()) == ["armed"]
    return group


@pytest.fixture
def woken_only(monkeypatch) -> None:
    """Waiters do not look by themselves for a minute, so that a test can allow a wake-up 20 seconds."""
    monkeypatch.setattr(base, "MAX_BLOCK", 60.0)
    monkeypatch.setattr(base, "MAX_BLOCK_IN_QUEUE", 60.0)
    monkeypatch.setattr(local_queue, "LEADER_CHECK_SECONDS", 60.0)


class ThreeNodes(Group):
    """Three nodes that the tests of a session share."""

    def __init__(self) -> None:
        super().__init__(RedisServer() for _ in range(3))


@pytest.fixture
def servers(running) -> Iterator[list[RedisServer]]:
    """Three nodes that are up and empty."""
    servers = running(ThreeNodes).servers
    for server in servers:
        revive(server)
        with server.client() as client:
            client.flushall()
    yield servers
    for server in servers:
        revive(server)
