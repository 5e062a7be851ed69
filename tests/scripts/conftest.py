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
ANOTHER = b"c" * 16 + b"00000000"
OWNER = b'{"host":"here"}'
VALUE = TOKEN + b" " + OWNER
THEIRS = OTHER + b' {"host":"there"}'
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
def places(keys):
    """The keys of three locks, or of three stripes. The first are `keys`."""
    return [keys, *(keys_for(b"redlock", b"stock:%d" % number) for number in (43, 44))]


@pytest.fixture
def call(redis):
    """`call(name, keys, *args)`: run that script, which can use its KEYS only."""
    return lambda name, keys, *args: redis.eval(STRICT + script(name).source, len(keys), *keys, *args)


KINDS = ["mutex", "fair", "rlock", "semaphore", "read", "write", "striped", "multi", "timestamp"]
SHARED = ["rlock", "semaphore", "read", "write"]  # kinds of which the key is a hash


@pytest.fixture
def acquire(call, keys, places):
    """`acquire(kind, token, ttl, wait, …)`: run the acquire script of that kind of lock."""
    several = [key for each in places for key in each.of_mutex]

    def run(kind, token=TOKEN, ttl=10_000, wait=0, *, fencing=0, limit=1, holder=None, order=2):
        if kind == "timestamp":
            where = keys.lock, keys.waiters, keys.fence
            return call("timestamp_acquire", where, token, OWNER, ttl, wait, 1000, 0)
        name, where, more = {
            "mutex": ("mutex_acquire", keys.of_mutex + (keys.fence,) * fencing, ()),
            "fair": ("fair_acquire", keys.of_queue, (order,)),
            "rlock": ("shared_acquire", keys.of_mutex, (kind, 1, holder or "me")),
            "semaphore": ("shared_acquire", keys.of_mutex, (kind, limit, "")),
            "read": ("rw_acquire", keys.of_queue, (order, "r", holder or token[:1])),
            "write": ("rw_acquire", keys.of_queue, (order, "w", holder or token[:1])),
            "striped": ("striped_acquire", several, ()),
            "multi": ("mutex_acquire", several, ()),
        }[kind]
        return call(name, where, token, OWNER, ttl, fencing, wait, *more)

    return run


@pytest.fixture
def extend(call, keys, places):
    """`extend(kind, ttl, token)`: run the extend script of that kind of lock."""

    def run(kind, ttl, token=TOKEN):
        if kind == "timestamp":
            return call("timestamp_extend", (keys.lock, keys.fence), token, ttl, 1000, 0)
        locks = [each.lock for each in places] if kind == "multi" else [keys.lock]
        return call("shared_extend" if kind in SHARED else "mutex_extend", locks, token, ttl, len(locks))

    return run


@pytest.fixture
def release(call, keys, places):
    """`release(kind, token, keep)`: run the release script of that kind of lock."""

    def run(kind, token=TOKEN, keep=0):
        if kind == "timestamp" and keep:
            return call("timestamp_extend", (keys.lock, keys.fence), token, keep, 1000, 0)
        name, where, more = {
            "mutex": ("mutex_release", keys.of_mutex, (keep,)),
            "fair": ("fair_release", keys.of_queue, (keep,)),
            "multi": ("mutex_release", [key for each in places for key in each.of_mutex], (keep, 3)),
            "timestamp": ("timestamp_release", (*keys.of_mutex, keys.fence), ()),
        }.get(kind, ("shared_release", keys.of_queue if kind in ("read", "write") else keys.of_mutex, (keep,)))
        return call(name, where, token, *more)

    return run


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
