"""Stores that fail for a moment at the worst time."""

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.errors import LockUnavailable
from django_redlock.testing.conformance.exclusion import WAKE
from django_redlock.testing.conformance.harness.fixtures import eventually
from django_redlock.testing.conformance.leases import is_renewed


class Stumbling(LocMemBackend):
    """A store that fails once, at a chosen operation."""

    stumbles_at, too_late = "", False

    def _stumble(self, where, error):
        if self.stumbles_at == where:
            self.stumbles_at = ""
            raise error

    def acquire_kind_once(self, primitive, claim):
        outcome = super().acquire_kind_once(primitive, claim)
        return outcome._replace(valid_until=0.0) if self.too_late else outcome

    def extend(self, lease, ttl):
        self._stumble("prolong", ZeroDivisionError("a defect"))
        return super().extend(lease, ttl)

    def release(self, claim, keep=0.0):
        self._stumble("free", LockUnavailable(claim.name, "stumbled"))
        return super().release(claim, keep)


@pytest.fixture
def backend(unique):
    return Stumbling(unique)


def test_a_defect_ends_no_renewal(backend, caplog):
    """An unexpected error in a renewal is logged, and all locks that were due with it are renewed in time."""
    with backend.lock("one", ttl=6) as one, backend.lock("other", ttl=6) as other:
        backend.stumbles_at = "prolong"
        assert is_renewed(one)
        assert is_renewed(other)
    assert "a defect" in caplog.text


def test_grant_that_came_too_late(backend):
    """A grant that arrives too late and can't be released at once is released later."""
    backend.too_late, backend.stumbles_at = True, "free"
    with pytest.raises(LockUnavailable):
        backend.lock("name").acquire()
    backend.too_late = False
    assert eventually(lambda: not backend.lock("name").locked())
    assert backend.lock("name").acquire(timeout=WAKE)
