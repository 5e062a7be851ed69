"""Fixtures for tests of single scripts: a state, a call, its reply and the state afterwards."""

import contextlib

import pytest

from django_redlock.core.flow.scripts import script
from django_redlock.core.keys import keys_for
from testproject.redis_server import RedisServer
from tests.scripts.strict import STRICT
from tests.support.older_redis import OlderRedis
from tests.support.service import revive

TOKEN = b"a" * 16 + b"00000000"
OTHER = b"b" * 16 + b"00000000"
OWNER = b'{"host":"here"}'
VALUE = TOKEN + b" " + OWNER
WAITER = TOKEN[:16] + b" " + OWNER
RESERVED = b"reserved"  # the value of a mutex that is free, but kept for a waiter


def now(redis):
    """Return the server's time in milliseconds."""
    seconds, micros = redis.time()
    return seconds * 1000 + micros // 1000


class Newer(RedisServer):
    """A server of these tests alone, into which nothing of other tests is written later."""


class Older(OlderRedis):
    """The same for the oldest supported Redis."""


@pytest.fixture(params=[Newer, Older], ids=["redis", "older-redis"])
def redis(request, running):
    """A client of an empty server."""
    server = running(request.param)
    revive(server)
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def keys():
    """The keys of a lock."""
    return keys_for(b"redlock", b"stock:42")


@pytest.fixture
def call(redis):
    """`call(name, keys, *args)`: run that script, which can use its KEYS only."""
    return lambda name, keys, *args: redis.eval(STRICT + script(name).source, len(keys), *keys, *args)


@pytest.fixture
def dump(redis):
    """`dump()`: all keys with their values."""

    def contents():
        kinds = {b"string": redis.get, b"list": lambda key: redis.lrange(key, 0, -1)}
        kinds[b"zset"] = lambda key: redis.zrange(key, 0, -1)
        kinds[b"hash"] = redis.hgetall
        return {key: kinds[redis.type(key)](key) for key in redis.scan_iter()}

    return contents


@pytest.fixture
def full(redis):
    """A context in which the server is out of memory."""

    @contextlib.contextmanager
    def without_memory():
        redis.config_set("maxmemory", "1")
        try:
            yield
        finally:
            redis.config_set("maxmemory", "0")

    return without_memory
