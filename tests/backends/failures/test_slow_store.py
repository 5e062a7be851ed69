"""A store that replies more slowly than the ttl: an error after a few requests."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.errors import LockUnavailable
from tests.support.locks import scripts_run

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
