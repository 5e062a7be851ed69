"""Finding the server: all Sentinels or Cluster servers are asked at once, also after the master has failed."""

import asyncio
import contextlib
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.harness.clients import TEST_TIMEOUT
from tests.backends.failures.test_unreadable_replies import talk
from tests.support.service import poll

STRANGE = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+OK\r\n", b"$-1\r\n", b":1\r\n", b"*1\r\n:1\r\n", b"*1\r\n*0\r\n"]
STRANGE += [b"-NOPERM this user has no permissions to run the 'sentinel' command\r\n", b"-ERR unknown command\r\n"]


@pytest.fixture
def answering(start):
    """`answering(text)`: an address that sends this text as its reply; nothing for an empty text."""

    def made(text):
        listener = start(contextlib.closing(socket.create_server(("127.0.0.1", 0))))

        def serve():
            with contextlib.suppress(OSError):
                while text:
                    connection, _ = listener.accept()
                    threading.Thread(target=talk, args=[connection, text], daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    return made


@pytest.fixture
def behind(sentinel, backend_at):
    """`behind(*addresses)`: a backend with these Sentinels and a correct one."""

    def made(*addresses, **options):
        right = sentinel.url.rpartition(",")[2]
        url = f"redis+sentinel://{','.join(addresses)},{right}"
        return backend_at(url, node_timeout=10, **options)

    return made


@pytest.mark.parametrize("text", STRANGE, ids=repr)
def test_an_address_that_is_no_sentinel(behind, answering, unique, text):
    with behind(answering(text)).lock(unique):
        pass


def test_only_wrong_sentinels(answering, backend_at, unique):
    """If no address in LOCATION is a Sentinel, the error names each with its problem."""
    places = [answering(text) for text in STRANGE]
    backend = backend_at(f"redis+sentinel://{','.join(places)}/locks")
    with pytest.raises(LockUnavailable) as caught:
        backend.lock(unique).acquire(False)
    assert all(place in str(caught.value) for place in places)


def test_sentinels_with_a_password(sentinel, backend_at, unique):
    """The password of the Sentinels is given after the service name in LOCATION."""
    clients = [each.client for each in sentinel.sentinels]
    for client in clients:
        client.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
    try:
        for query, outcome in {
            "": "requires a password.*sentinel_password",
            "?password=secret": "requires a password.*sentinel_password",  # the password of the data nodes
            "?sentinel_password=wrong": "WRONGPASS|invalid",
        }.items():
            backend = backend_at(sentinel.url + query)
            with pytest.raises(LockUnavailable, match=outcome):
                backend.lock(unique).acquire(False)
        url = sentinel.url + "?sentinel_password=secret"
        with backend_at(url).lock(unique):
            pass
    finally:
        for client in clients:
            client.execute_command("ACL", "SETUSER", "default", "nopass")


def test_silent_sentinels(answering, backend_at, unique):
    """Several Sentinels that do not reply cost one node timeout together."""
    places = ",".join(answering(b"") for _ in range(8))
    backend = backend_at(f"redis+sentinel://{places}/locks", node_timeout=2)
    began = time.monotonic()
    with pytest.raises(LockUnavailable, match="no reply in time"):
        backend.lock(unique).acquire(False)
    assert time.monotonic() - began < 12  # one after another would take 16 s


@pytest.fixture
def urls(sentinel, cluster, redis_server):
    host = f"redis://localhost:{redis_server.port}"
    return {"sentinel": sentinel.url, "cluster": cluster.url, "name": host}


@pytest.mark.parametrize("where", ["sentinel", "cluster", "name"])
def test_a_full_executor(urls, unique, where):
    """A full default executor of the event loop does not delay look-ups."""
    over = threading.Event()

    async def scenario():
        backend = RedisBackend(urls[where], node_timeout=10)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        busy = asyncio.create_task(asyncio.to_thread(over.wait, 15))
        await asyncio.sleep(0)
        try:
            assert await backend.lock(unique).aacquire(timeout=10)
            assert await backend.aheld(unique)
            assert not busy.done()
        finally:
            over.set()
            await busy
            await backend.aclose()
            backend.close()

    asyncio.run(asyncio.wait_for(scenario(), TEST_TIMEOUT))


@pytest.mark.parametrize("kind", [RedisBackend, TimestampBackend])
def test_a_list_is_read_from_the_new_master(sentinel, backend_at, unique, kind):
    """A listing right after a failover reads the new master, without an error of the old one."""
    backend = backend_at(sentinel.url, kind, key_prefix=unique)
    with backend.lock(unique):
        pass
    former = sentinel.master
    former.kill()
    sentinel.wait_for_new_master(former)
    assert backend.held() == []
    with backend.lock(unique):
        assert [each.name for each in backend.held()] == [unique]


@contextmanager
def replicas_required(servers):
    """Context manager in which a master without replicas takes no writes."""

    def require(replicas):
        for server in servers:
            with server.client() as client:
                client.config_set("min-replicas-to-write", replicas)

    require(1)
    try:
        yield
    finally:
        require(0)


def test_a_former_master_without_replicas(sentinel, start, unique, backend_at):
    """A former master that requires replicas leads its clients to the new one, before Sentinels demote it after 8 s."""
    start(replicas_required(sentinel.servers))
    backend = backend_at(sentinel.url)
    lock = backend.lock(unique)
    assert lock.acquire(False)
    former = sentinel.master
    with former.client() as old, sentinel.failover().client() as new:
        poll(lambda: old.info("replication").get("connected_slaves", 0) == 0, timeout=60, what="a master alone")
        poll(lambda: new.info("replication").get("connected_slaves", 0), timeout=60, what="a master with replicas")
        assert backend.lock(f"{unique}:2").acquire(False)
        lock.extend()
    lock.release()


def test_a_child_asks_the_sentinels_itself(sentinel, unique):
    """The child of a fork asks the Sentinels for the master, because the parent's master may have died."""
    backend = RedisBackend(sentinel.url, node_timeout=10)
    with backend.lock(unique):
        pass
    former = sentinel.master
    former.kill()
    sentinel.wait_for_new_master(former)
    if (child := os.fork()) == 0:  # pragma: no cover
        try:
            os._exit(not backend.lock(unique).acquire(blocking=False))
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    backend.close()
