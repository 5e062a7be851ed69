"""The longest ttl that each backend allows by default."""

import pytest

from django_redlock.backends.redis import RedisBackend
from django_redlock.backends.redlock import RedlockBackend
from django_redlock.backends.replica import ReplicaBackend

URL = "redis://127.0.0.1:1/0"


@pytest.mark.parametrize(
    ("backend", "location", "options"),
    [(RedisBackend, URL, {}), (RedlockBackend, [URL], {}), (ReplicaBackend, URL, {"min_replicas": 1})],
    ids=["redis", "redlock", "replica"],
)
@pytest.mark.parametrize(("quarantine", "expected"), [(True, 60), (False, 300)])
def test_default(backend, location, options, quarantine, expected):
    """A lease may last 60 s where a quarantine lasts as long, and 300 s without quarantine."""
    made = backend(location, quarantine=quarantine, **options)
    assert made.max_ttl == expected
    made.close()
