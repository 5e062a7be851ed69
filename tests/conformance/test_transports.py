"""The transports: a Unix socket, TLS, Sentinels, a Cluster, and an older server."""

import functools

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.testing.conformance import TransportConformance
from django_redlock.testing.conformance.hand_offs import HandOffCases
from django_redlock.testing.conformance.kinds.multilocks import MultilockCases
from django_redlock.testing.conformance.kinds.stripes import StripedCases
from django_redlock.testing.conformance.periods import PeriodCases
from testproject.redis_server import RedisServer
from tests.conformance.transports import OwnAuthority, SameBytes
from tests.support.cluster import Cluster
from tests.support.older_redis import OlderRedis
from tests.support.sentinel import Sentinel
from tests.support.service import revive
from tests.support.tls import TlsRedis

# Names are unique and nothing else is looked at: the servers are shared with all other tests, and not emptied.


FAULTS = {
    "closed connection": lambda admin: admin.client_kill_filter(_type="normal", skipme=True),
    "forgotten script": lambda admin: admin.script_flush(),
}


class ConnectionCases:
    """The servers close connections and forget scripts."""

    @pytest.mark.parametrize("method", ["acquire", "extend", "release", "owned", "held", "describe", "force_release"])
    @pytest.mark.parametrize("fault", FAULTS)
    def test_sent_again(self, servers, client, name, method, fault):
        """A request is sent again on a new connection, and a script is sent again to a server that has lost it."""
        lock = client.lock(name)
        lock.acquire()
        if method == "acquire":
            lock.release()
        for server in servers:
            with server.client() as admin:
                FAULTS[fault](admin)
        if method == "held":
            assert name in [row.name for row in client.held(f"*{name}*")]
        elif hasattr(lock, method):
            getattr(lock, method)()
            assert (method == "release") is (lock.token is None)
        else:
            assert getattr(client, method)(name)


class RedisTransport(ConnectionCases, TransportConformance):
    """`transport` is a server of `tests.support` that the session shares."""

    @pytest.fixture
    def there(self, running):
        server = running(self.transport)
        if hasattr(server, "heal"):
            server.heal()
        else:
            revive(server)
        return server

    @pytest.fixture
    def servers(self, there):
        return [there]

    @pytest.fixture
    def location(self, there):
        return there.url

    @pytest.fixture
    def new_backend(self, location):
        # On a machine with much to do a server may take its time: that is not what is tested here.
        return functools.partial(RedisBackend, location, node_timeout=10)


class TestOlderRedis(RedisTransport):
    transport = OlderRedis

    def test_shortest_wait(self, client, name):
        """A wait below 2 ms ends, although BLPOP of this server reads 1 ms as unlimited."""
        with client.lock(name):
            assert not any(client.lock(name).acquire(timeout=number / 5000) for number in range(1, 15))


class TestUnixSocket(SameBytes, RedisTransport):
    transport = RedisServer

    @pytest.fixture
    def location(self, there):
        return there.unix_url


class TestTls(SameBytes, OwnAuthority, RedisTransport):
    transport = TlsRedis


class TestSentinel(SameBytes, RedisTransport, HandOffCases):
    transport = Sentinel

    @pytest.fixture
    def servers(self, there):
        return [there.master]


class TestCluster(RedisTransport, StripedCases, MultilockCases, HandOffCases, PeriodCases):
    """Names may be in different slots; kinds with several names run in full."""

    transport = Cluster

    @pytest.fixture
    def servers(self, there):
        return there.nodes
