"""A Redis that does not serve, or has a foreign value: a clear error in bounded time, and no grant."""

import contextlib
import threading
import time

import pytest

from django_redlock.errors import LockError, LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import eventually, until_someone_waits
from tests.backends.failures.broken_servers import SOON, OwnRedis, is_free, served


@contextlib.contextmanager
def unavailable(match=None):
    """Expect LockUnavailable, within bounded time and with its cause."""
    start = time.monotonic()
    with pytest.raises(LockUnavailable, match=match) as caught:
        yield caught
    assert time.monotonic() - start < SOON
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__ in caught.value.errors.values()
    assert isinstance(caught.value, ConnectionError)


class TestNotReachable(OwnRedis):
    """Nothing listens: no Redis, no server that could name the current master or slot."""

    @pytest.fixture(params=["redis:", "redis+cluster://127.0.0.1:2,", "redis+sentinel:"])
    def url(self, request):
        scheme = request.param.removesuffix(":") + ("://" if request.param.endswith(":") else "")
        return f"{scheme}127.0.0.1:1/{'locks/' if 'sentinel' in scheme else ''}0"

    def test_every_operation(self, client, name):
        """Every operation raises LockUnavailable, even with an unlimited timeout."""
        lock = client.lock(name)
        for ask in (
            lock.acquire,
            lambda: lock.acquire(False),
            lambda: lock.acquire(timeout=60),
            lock.__enter__,
            lock.locked,
            lock.owned,
            client.held,
            lambda: client.describe(name),
            lambda: client.force_release(name),
        ):
            with unavailable("Error 111"):
                ask()
        assert [row["ok"] for row in client.health()] == [False]
        assert lock.token is None


class TestDown(OwnRedis):
    """The server is down."""

    node_timeout = 5

    def test_comes_back(self, server, client, name):
        server.stop()
        lock = client.lock(name)
        with unavailable():
            lock.acquire()
        server.start()
        with lock:
            lock.check()

    def test_while_held(self, server, client, name):
        """With the server down extend() and release() raise LockUnavailable; the lease is valid until its end."""
        lock = client.lock(name)
        lock.acquire()
        server.kill()
        with unavailable():
            lock.extend()
        lock.check()
        assert lock.remaining > 20
        with unavailable():
            lock.release()
        assert lock.token is None

    def test_at_the_end_of_a_block(self, server, client, name, caplog):
        """A block whose release fails under a valid lease ends without an error, and a warning is logged."""
        with client.lock(name):
            server.kill()
        assert name in caplog.text

    def test_body_fails_as_well(self, server, client, name):
        with pytest.raises(ZeroDivisionError), client.lock(name):  # noqa: PT012
            server.kill()
            1 / 0  # noqa: B018


NO_REPLY = {
    "stopped": lambda server, _: server.pause(),
    "late": lambda _, proxy: proxy.hold("replies"),
    "byte by byte": lambda _, proxy: proxy.drip(0.5),  # 2 s for the shortest reply
}


class TestCutOff(OwnRedis):
    """The server runs, and is not reachable for a while."""

    @pytest.fixture
    def url(self, proxy):
        return proxy.url

    @pytest.mark.parametrize("connected", [False, True], ids=["new-connection", "old-connection"])
    @pytest.mark.parametrize("way", NO_REPLY)
    def test_no_reply(self, redis_server, proxy, client, other, name, way, connected):
        """Without a reply every request raises LockUnavailable after the node timeout, and a late grant is released."""
        if connected:
            served(client.lock(f"{name}:first").acquire, False)  # finds out that the server runs scripts
        NO_REPLY[way](redis_server, proxy)
        for ask in (client.lock(name).acquire, client.lock(name).locked, client.held):
            with unavailable("no reply in time"):
                ask()
        assert [row["ok"] for row in client.health()] == [False]
        redis_server.resume()
        proxy.restore()
        assert is_free(other.lock(name)), "a lock that nobody owns"

    def test_each_reply_has_its_node_timeout(self, proxy, new_client, name):
        client = new_client(node_timeout=4)
        proxy.delay(1.1)
        with client.lock(name, ttl=30) as lock:
            assert lock.remaining > 10

    def test_lost_reply_on_a_new_connection(self, proxy, client, other, name):
        """If a new connection breaks before the reply, the lock is either held or free."""
        lost = proxy.lose_next_reply(name.encode())
        lock = client.lock(name)

        def asked():
            with contextlib.suppress(LockUnavailable):
                lock.acquire(False)
            return lost.wait(1)  # not yet, if the machine was too busy to connect in time

        assert eventually(asked, SOON)
        if lock.token is None:
            assert is_free(other.lock(name)), "a lock that nobody owns"
        else:
            assert served(lock.owned)


class TestHung(OwnRedis):
    """The server hangs with its connections open."""

    @pytest.fixture(autouse=True)
    def runs_on(self, server):
        yield
        server.resume()

    def test_while_waiting(self, server, client, other, name, spawn):
        """A waiter at a hung server gets LockUnavailable after the end of the holder's lease."""
        served(other.lock(name).locked)
        assert is_free(client.lock(name, ttl=4, auto_renew=False))
        waiting = spawn(other.lock(name).acquire)
        served(until_someone_waits, client, name)
        server.pause()
        with unavailable():
            waiting.result(TEST_TIMEOUT)
        server.resume()
        assert is_free(client.lock(name)), "a lock that nobody owns"

    def test_while_held(self, server, new_client, name):
        """A lease that can't be renewed is lost at its end, and on_lost is called."""
        told = threading.Event()
        lock = new_client().lock(name, ttl=0.6, on_lost=lambda _: told.set())
        assert is_free(lock)
        server.pause()
        assert told.wait(SOON)
        assert lock.lost

    def test_for_a_moment(self, server, new_client, other, name):
        lock = new_client().lock(name, ttl=6)
        assert is_free(lock)
        start = time.monotonic()
        server.pause()
        while time.monotonic() < start + 2.6:  # the first renewal, after 2 s, is in vain
            with unavailable():
                other.lock(name).acquire()
        server.resume()
        assert eventually(lambda: time.monotonic() > start + 6 or lock.lost)
        assert lock.lost is False
        assert not served(other.lock(name).acquire, False)


class TestUnwilling(OwnRedis):
    """The server replies, and grants no locks."""

    node_timeout = 5

    def test_read_only(self, server, client, name):
        """A replica raises LockUnavailable that says what LOCATION must name, and grants after its promotion."""
        with server.client() as admin:
            admin.replicaof("127.0.0.1", 1)
            with unavailable("LOCATION must name the primary"):
                client.lock(name).acquire()
            admin.replicaof("NO", "ONE")
        assert client.lock(name).acquire()

    def test_out_of_memory(self, server, client, other, name):
        """A server out of memory grants nothing and says why; held locks can be extended and released."""
        held = client.lock(name)
        held.acquire()
        with server.client() as admin:
            admin.config_set("maxmemory", 1)
        with unavailable("memory"):
            other.lock(name + "another").acquire()
        held.extend()
        held.release()
        assert not held.locked()

    @pytest.mark.parametrize("command", ["rpush", "sadd"])
    def test_wrong_type(self, server, client, name, command):
        """A key of another type raises a LockError that is not LockUnavailable, and stays."""
        with server.client() as admin:
            key = f"redlock:{{{name}}}"
            admin.execute_command(command, key, "theirs")
            before = admin.dump(key)
            with pytest.raises(LockError, match="WRONGTYPE") as caught:
                client.lock(name).acquire()
            assert not isinstance(caught.value, LockUnavailable)
            assert caught.value.__cause__ is not None
            assert admin.dump(key) == before
