"""Servers that can't do what locks need are found out at the first use, and the error names the way out."""

import asyncio
import contextlib

import pytest
from redis.exceptions import ResponseError

from django_redlock.backends.redis import RedisBackend
from django_redlock.client.errors import hint_of
from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer
from tests.support.replicas import replicate, wait_in_sync

WITHOUT_SCRIPTS = "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""


def message(backend, face):
    """Return the message of the error of an acquire."""
    with contextlib.closing(backend), pytest.raises(LockUnavailable) as caught:
        backend.lock("x").acquire(False) if face == "sync" else asyncio.run(backend.lock("x").aacquire(False))
    return str(caught.value)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_without_scripts(start, face):
    """Without scripts no lock is acquired that could not be released. `health()` says so, too."""
    server = start(RedisServer(*WITHOUT_SCRIPTS))
    assert "locks need Lua scripts" in message(RedisBackend(server.url, node_timeout=5), face)
    with server.client() as client:
        assert not client.keys("*")
    with contextlib.closing(RedisBackend(server.url, node_timeout=5)) as backend:
        [row] = backend.health()
    assert not row["ok"]
    assert any("locks need Lua scripts" in problem for problem in row["problems"])


@pytest.mark.parametrize("face", ["sync", "async"])
def test_replica(own_redis, face):
    """A replica takes no writes. The error says what LOCATION must name."""
    primary, replica = own_redis(), own_redis()
    replicate(replica, primary.port)
    wait_in_sync(primary, [replica])
    assert "LOCATION must name the primary" in message(RedisBackend(replica.url, node_timeout=5), face)


def test_info_in_scripts():
    """Where scripts can't call INFO, the hint is to turn quarantine off."""
    assert "quarantine=False" in hint_of(ResponseError("This Redis command is not allowed from script"), False)
