"""The connections and the known address of a master that has failed."""

from contextlib import closing

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.errors import LockUnavailable


@pytest.mark.parametrize("kind", [RedisBackend, TimestampBackend])
def test_a_list_is_read_from_the_new_master(sentinel, start, unique, kind):
    """A listing right after a failover reads the new master, without an error of the old one."""
    backend = start(closing(kind(sentinel.url, key_prefix=unique, node_timeout=10)))
    with backend.lock(unique):
        pass
    former = sentinel.master
    former.kill()
    sentinel.wait_for_new_master(former)
    assert backend.held() == []
    with backend.lock(unique):
        assert [each.name for each in backend.held()] == [unique]


def test_a_list_without_a_master(sentinel, start, unique):
    """A listing without a master raises LockUnavailable."""
    backend = start(closing(RedisBackend(sentinel.url, node_timeout=10)))
    with backend.lock(unique):
        pass
    for server in sentinel.servers:
        server.kill()
    with pytest.raises(LockUnavailable):
        backend.held()
