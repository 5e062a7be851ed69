"""`min_hold` and `every` when a release gets no answer: the release in the background keeps the lock, too."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.errors import LockUnavailable
from tests.support.service import poll


@pytest.mark.parametrize("option", ["min_hold", "every"])
def test_unanswered_release(proxy, redis_server, client_of, unique, option):
    """The lock stays taken for the rest of the time, and another can't acquire it."""
    client = client_of(RedisBackend(proxy.url, ttl=20, node_timeout=3))
    lock = client.lock(unique, auto_renew=False, **{option: 250})
    assert lock.acquire()
    with redis_server.client() as direct:
        direct.pexpire(f"redlock:{{{unique}}}", 20_000)
        proxy.drop("requests")
        with pytest.raises(LockUnavailable):
            lock.release()
        proxy.restore()
        poll(lambda: direct.pttl(f"redlock:{{{unique}}}") not in range(20_001), timeout=60, what="a release")
        assert direct.pttl(f"redlock:{{{unique}}}") > 20_000
