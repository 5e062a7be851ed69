"""Clients and credential providers that an application has: their server, settings and limit are taken over."""

import asyncio
import contextlib

import pytest
import redis
import valkey
from redis.connection import Connection
from redis.credentials import CredentialProvider

from django_redlock.backends.redis import RedisBackend
from django_redlock.client import pool
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.support.sentinel import SERVICE


class CountedConnection(Connection):
    """A connection class of an application, with an option of its own."""

    opened = 0

    def __init__(self, *, tenant, **options):
        super().__init__(**options)
        assert tenant == "a"

    def connect(self):
        type(self).opened += 1
        super().connect()


class Credentials(CredentialProvider):
    """A provider that counts how often it is asked."""

    asked = 0

    def get_credentials(self):
        type(self).asked += 1
        return "default", "any"


def pair(backend, name):
    with backend.lock(name):
        pass


async def apair(backend, name):
    async with backend.lock(name):
        pass
    await backend.aclose()


@pytest.mark.parametrize("library", [redis.Redis, valkey.Valkey, redis.asyncio.Redis])
def test_client(redis_server, unique, library):
    """A client's server and database are used, blocking and with asyncio."""
    client = library.from_url(redis_server.url.removesuffix("/0") + "/3", client_name=unique)
    with contextlib.closing(RedisBackend(client)) as backend, redis_server.client() as onlooker:
        with backend.lock(unique):
            assert {each["db"] for each in onlooker.client_list() if each["name"] == unique} == {"3"}
        asyncio.run(apair(backend, unique))


@pytest.mark.parametrize("pool_class", [redis.ConnectionPool, redis.BlockingConnectionPool])
def test_class_settings_and_limit_of_a_client(redis_server, unique, pool_class):
    """The connection class, its own settings and the limit of a client's pool are kept."""
    settings = {"port": redis_server.port, "tenant": "a", "credential_provider": Credentials()}
    connections = pool_class(connection_class=CountedConnection, max_connections=3, **settings)
    client = redis.Redis(connection_pool=connections)
    client.close()  # the connections of a client are not used
    with contextlib.closing(RedisBackend(client)) as backend:
        before, asked = CountedConnection.opened, Credentials.asked
        pair(backend, unique)
        assert (CountedConnection.opened, Credentials.asked) == (before + 1, asked + 1)
        assert backend.nodes[0].known_pool(None)._limit.size == 3


CLIENT = None


def make_client():
    return CLIENT


def test_function(redis_server, unique, monkeypatch):
    """LOCATION may be the dotted path of a function that returns a client."""
    monkeypatch.setattr(f"{__name__}.CLIENT", redis.Redis(port=redis_server.port))
    with contextlib.closing(RedisBackend(f"{__name__}.make_client")) as backend:
        pair(backend, unique)


def test_server_of_a_cluster(cluster, unique):
    """A URL of one server of a Cluster raises an error that names the scheme to use."""
    with contextlib.closing(RedisBackend(cluster.nodes[0].url)) as backend:
        elsewhere = cluster.names_on_each(unique)[1][0]
        with pytest.raises(LockUnavailable, match=r"redis\+cluster://"):
            backend.lock(elsewhere).acquire(timeout=0)


def test_client_of_a_cluster(cluster, unique):
    """A client of a Redis Cluster provides the addresses of its servers."""
    client = redis.RedisCluster("127.0.0.1", cluster.nodes[0].port)
    with contextlib.closing(client), contextlib.closing(RedisBackend(client)) as backend:
        pair(backend, unique)


def test_client_of_sentinels(sentinel, unique):
    """A client that Sentinels manage provides the Sentinels and the name of the service."""
    manager = redis.Sentinel([("127.0.0.1", each.port) for each in sentinel.sentinels])
    with contextlib.closing(RedisBackend(manager.master_for(SERVICE))) as backend:
        pair(backend, unique)


@pytest.mark.parametrize("provider", [Credentials(), f"{__name__}.Credentials"])
def test_credential_provider(redis_server, unique, provider):
    """The option ``credential_provider`` is an object, or the dotted path of a class."""
    with contextlib.closing(RedisBackend(redis_server.url, credential_provider=provider)) as backend:
        pair(backend, unique)
        asyncio.run(apair(backend, unique))


def test_renewed_credentials(redis_server, unique, monkeypatch):
    """A connection is replaced, with new credentials, before the old ones can end."""
    with contextlib.closing(RedisBackend(redis_server.url, credential_provider=Credentials())) as backend:
        pair(backend, unique)
        asked = Credentials.asked
        pair(backend, unique)
        assert Credentials.asked == asked
        (connection,) = backend.nodes[0].known_pool(None).idle_connections
        monkeypatch.setattr(connection, "opened_at", connection.opened_at - pool.MAX_AGE_SECONDS)
        pair(backend, unique)
        assert Credentials.asked == asked + 1


async def test_renewed_credentials_on_an_event_loop(redis_server, unique, monkeypatch):
    """The connection that the tasks of an event loop share is replaced, too."""
    monkeypatch.setattr(pool, "MAX_AGE_SECONDS", 0.2)
    with contextlib.closing(RedisBackend(redis_server.url, credential_provider=Credentials())) as backend:
        async with backend.lock(unique):
            asked = Credentials.asked
            connections = backend.nodes[0].known_pool(None).shared
            async with asyncio.timeout(TEST_TIMEOUT):
                while connections.current() is not None:  # noqa: ASYNC110  (a timer of the loop retires it)
                    await asyncio.sleep(0.01)
        assert Credentials.asked > asked
        await backend.aclose()
