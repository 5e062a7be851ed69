"""Broken connections, restarted servers and forgotten scripts do not reach the caller."""

import contextlib

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance.exclusion import WAKE
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from django_redlock.testing.conformance.harness.fixtures import eventually, until_someone_waits
from django_redlock.testing.conformance.leases import holds_renewed, is_renewed
from tests.backends.failures.broken_servers import OwnRedis


class TestNew(OwnRedis):
    """New connections."""

    node_timeout = 10

    def test_no_round_trips_before_the_first_request(self, server, client, name):
        """Without a password and a database number a new connection sends nothing before the first request."""
        server.restart()  # closes what there is
        with contextlib.closing(server.client()) as admin:
            admin.config_resetstat()
            with client.lock(name):
                pass
            asked = {command.partition("_")[2] for command in admin.info("commandstats")}
            unknown = admin.info("errorstats").get("errorstat_ERR")  # what it was told of before Redis 7.2
        assert not {command for command in asked if command.startswith(("client", "hello", "select", "ping"))}
        assert not unknown


class TestStale(OwnRedis):
    """Idle connections that the server has closed."""

    node_timeout = 10

    def test_renewal(self, server, new_client, name):
        """A renewal works as the first request on a closed connection."""
        lock = new_client().lock(name, ttl=self.renewable)

        def renewed():
            with server.client() as admin:
                return admin.client_kill_filter(_type="normal", skipme=True) and is_renewed(lock)

        for _ in range(2):
            assert holds_renewed(lambda: (lock.token and not lock.lost) or lock.acquire(timeout=TEST_TIMEOUT), renewed)

    def test_while_waiting(self, server, client, other, name, spawn):
        """A waiter whose connection is closed goes on waiting and is woken."""
        lock = client.lock(name)
        lock.acquire()
        waiting = spawn(other.lock(name).acquire, True, TEST_TIMEOUT)
        until_someone_waits(client, name)
        with server.client() as admin:
            assert eventually(lambda: admin.client_kill_filter(_type="normal", skipme=True))
            assert eventually(lambda: any(each["cmd"] == "blpop" for each in admin.client_list()))
        lock.release()
        assert waiting.result(WAKE)


class TestLostReply(OwnRedis):
    """The server has performed a request, and the connection breaks before the reply."""

    node_timeout = 10

    @pytest.fixture
    def url(self, proxy):
        return proxy.url

    def test_release(self, proxy, client, other, name):
        """The lock is free, and release() raises no error."""
        with client.lock(name):
            lost = proxy.lose_next_reply(name.encode())
        assert lost.is_set()
        assert other.lock(name).acquire(False)

    def test_release_when_another_has_it_by_then(self, proxy, client, other, name):
        """The repeated release does not release the next holder's lock."""
        lock, following = client.lock(name), other.lock(name)
        lock.acquire()
        lost = proxy.lose_next_reply(name.encode())
        lock.release()
        assert lost.is_set()
        with following:
            following.check()

    def test_extend(self, proxy, client, name):
        with client.lock(name, ttl=10, auto_renew=False) as lock:
            lost = proxy.lose_next_reply(name.encode())
            assert lock.extend(20) > 10
            assert lost.is_set()

    def test_wake_up(self, proxy, redis_server, client, name, spawn):
        with contextlib.closing(RedisBackend(redis_server.url, node_timeout=10)) as elsewhere:
            lock = elsewhere.lock(name)
            lock.acquire()
            lost = proxy.lose_next_reply(b"BLPOP")
            second = client.lock(name)
            waiting = spawn(second.acquire, True, TEST_TIMEOUT)
            assert eventually(lambda: (held := elsewhere.describe(name)) and held.waiters)
            lock.release()
            assert waiting.result(TEST_TIMEOUT)
            assert lost.is_set()
            assert second.owned()
