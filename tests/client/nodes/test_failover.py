"""The connections and the known address of a master that has failed."""

import os
from contextlib import contextmanager

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.timestamp import TimestampBackend
from tests.support.service import poll


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
    """After an ordered failover, Sentinels leave the former master a master for eight seconds. If it requires replicas,
    its clients find the new master at once: a free lock is acquired there, and a held one extended.
    """
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
