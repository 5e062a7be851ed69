"""A Redis that replies but does not serve: it is busy, loads its data, is full, can't run scripts, or is too slow."""

import contextlib
import functools
import resource
import threading

import pytest
import redis
from redis.exceptions import ResponseError

from django_redlock.backend_registry import build
from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.client.errors import hint_of
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from testproject.redis_server import RedisServer
from tests.backends.failures.broken_servers import OwnRedis
from tests.support.locks import scripts_run
from tests.support.service import poll


def says(word, client):
    try:
        client.get("x")
    except redis.RedisError as error:
        return word in str(error)
    return False


def test_busy(own_redis, client_of, unique):
    """A busy server raises LockUnavailable at once, and a release that failed is repeated later."""
    server = own_redis("--lua-time-limit", "20")
    client = client_of(RedisBackend(server.url, node_timeout=10))
    held = client.lock(unique)
    assert held.acquire()
    with server.client() as stuck, server.client() as admin:
        loop = threading.Thread(target=_forever, args=[stuck], daemon=True)
        loop.start()
        poll(lambda: says("BUSY", admin), timeout=TEST_TIMEOUT, what="a server that is busy")
        with pytest.raises(LockUnavailable, match="BUSY"):
            client.lock(unique + "other").acquire(timeout=TEST_TIMEOUT)
        with pytest.raises(LockUnavailable, match="BUSY"):
            held.release()
        admin.script_kill()
        loop.join(TEST_TIMEOUT)
        with client.lock(unique + "other"):
            pass
        poll(lambda: not admin.exists(f"redlock:{{{unique}}}"), timeout=TEST_TIMEOUT, what="the release")


def _forever(client):
    with contextlib.suppress(redis.RedisError):
        client.eval("while true do end", 0)


def test_loading(own_redis, client_of, unique):
    """A server that loads its data raises LockUnavailable at once, and serves when the data is loaded."""
    server = own_redis("--save", "1000 1000", "--loading-process-events-interval-bytes", "1024")
    with server.client() as admin:
        admin.eval("for i = 1, 10000 do redis.call('SET', 'k' .. i, string.rep('x', 100)) end", 0)
        admin.save()
        server.kill()
        server.extra_args = (*server.extra_args, "--key-load-delay", "600")
        starting = threading.Thread(target=server.start)
        starting.start()
        client = client_of(RedisBackend(server.url, node_timeout=10))
        poll(lambda: says("load", admin), timeout=TEST_TIMEOUT, what="a server that loads")
        with pytest.raises(LockUnavailable, match="loading the dataset"):
            client.lock(unique).acquire(timeout=TEST_TIMEOUT)
        starting.join(2 * TEST_TIMEOUT)
        with client.lock(unique):
            pass


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


LOCATIONS = ["redis://127.0.0.1:1/0", "rediss://127.0.0.1:1/0"]


@contextlib.contextmanager
def no_more_files():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class TestFullServer(OwnRedis):
    """The server closes new connections, with an error about too many clients."""

    @pytest.fixture(params=[RedisBackend, RedlockBackend], ids=["redis", "redlock"])
    def new_backend(self, request, url):
        where = [url] if request.param is RedlockBackend else url
        return functools.partial(request.param, where, node_timeout=10, quarantine=False)

    def test_says_that_it_is_full(self, server, client, new_client, name):
        """The error says that the server has too many clients, even if only the closed connection was seen."""
        with server.client() as admin:
            admin.config_set("maxclients", 1)
            for user in (client, new_client(), new_client()):
                with pytest.raises(LockUnavailable, match="clients") as caught:
                    user.lock(name).acquire(False)
                assert caught.value.__cause__ is not None


@pytest.mark.parametrize("location", LOCATIONS)
def test_no_more_files(location):
    """A process that can't open files gets LockUnavailable, from the first backend on."""
    entry = {"BACKEND": f"{RedisBackend.__module__}.{RedisBackend.__name__}", "LOCATION": location}
    with no_more_files(), pytest.raises(LockUnavailable, match="Too many open files") as caught:
        build("default", entry).lock("x").acquire(False)
    assert caught.value.__cause__ in caught.value.errors.values()


BACKENDS = {
    "redis": lambda url: RedisBackend(url, node_timeout=5),
    "quorum": lambda url: RedlockBackend([url], node_timeout=5, quarantine=False),
}


@pytest.fixture(params=BACKENDS)
def client(request, client_of, proxy):
    """A connected client whose store has a latency of 20 ms."""
    client = client_of(BACKENDS[request.param](proxy.url))
    with client.lock("another"):
        pass
    proxy.delay(0.01)
    yield client
    proxy.restore()


@pytest.mark.parametrize("options", [{"ttl": 0.01}, {"max_hold": 0.01}], ids=str)
@pytest.mark.parametrize("wait", [(True, -1), (True, 20), (False,)], ids=str)
def test_acquire(client, redis_server, unique, options, wait):
    """acquire() gives up after a few requests, with any timeout, and leaves nothing behind."""
    before = scripts_run(redis_server)
    lock = client.lock(unique, **options)
    with pytest.raises(LockUnavailable, match="more slowly than the ttl"):
        lock.acquire(*wait)
    assert lock.token is None
    assert scripts_run(redis_server) - before < 25
    with client.lock(unique, blocking_timeout=20):
        pass
