"""The conformance suite on locks that are shared with older code."""

import functools

import pytest

from django_redlock.backends.timestamp import TimestampBackend
from django_redlock.errors import LockNotSupported
from django_redlock.testing.conformance import BackendConformance
from django_redlock.testing.conformance.leases import LeaseCases


class OnOldCode:
    """The locks are shared with older code."""

    lacks = ("fair", "rlock", "rwlock", "semaphore", "striped", "multilock", "every", "fencing")
    unit = "s"

    @pytest.fixture
    def new_backend(self, redis_url):
        return functools.partial(TimestampBackend, redis_url, unit=self.unit, node_timeout=10)


class TestSeconds(OnOldCode, BackendConformance):
    def test_fencing_is_refused(self, client, name):
        """fencing=True is refused, because older code has no fencing tokens."""
        with pytest.raises(LockNotSupported, match="fencing"):
            client.lock(name, fencing=True)


class TestMilliseconds(OnOldCode, LeaseCases):
    """The tests with timestamps in milliseconds."""

    unit = "ms"
