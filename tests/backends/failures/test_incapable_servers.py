"""Servers that can't do what locks need are found out at the first use, and the error names the way out."""

import pytest
from redis.exceptions import ResponseError

from django_redlock.backends.redis import RedisBackend
from django_redlock.client.errors import hint_of
from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer

WITHOUT_SCRIPTS = "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""


def test_without_scripts(start, client_of):
    """Without scripts no lock is acquired that could not be released. `health()` says so, too."""
    server = start(RedisServer(*WITHOUT_SCRIPTS))
    client = client_of(RedisBackend(server.url, node_timeout=5))
    with pytest.raises(LockUnavailable, match="locks need Lua scripts"):
        client.lock("x").acquire(False)
    with server.client() as direct:
        assert not direct.keys("*")
    [row] = client.health()
    assert not row["ok"]
    assert any("locks need Lua scripts" in problem for problem in row["problems"])


def test_info_in_scripts():
    """Where scripts can't call INFO, the hint is to turn quarantine off."""
    assert "quarantine=False" in hint_of(ResponseError("This Redis command is not allowed from script"), False)
