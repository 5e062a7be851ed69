"""Znodes that another program has created among the locks."""

import math

import pytest

from django_redlock.errors import LockNotAcquired

from .tools import PATIENCE

DEEP = b"[" * 5000 + b"]" * 5000
DATA = [
    b"nan/1/1.000 {}",
    b"inf/1/1.000 {}",
    b"1.000/inf/1.000 {}",
    b"1.000/1/nan {}",
    b"30.000/0/0.000 " + DEEP,
    b'30.000/0/0.000 {"label":"\\udcff","since":NaN}',
    DEEP,
    b"x" * 500_000,
    b"",
]


@pytest.mark.parametrize("data", DATA, ids=lambda data: repr(data[:20]))
def test_unreadable_data(backend, witness, unique, data):
    """Whatever the data of the holder's znode, the lock is listed as one row and named in refusals."""
    path = f"{backend._recipe.root}/{unique}"
    witness.create(f"{path}/0-", data, ephemeral=True, sequence=True, makepath=True)
    (held,) = backend.held(unique)
    assert held.remaining is None or math.isfinite(held.remaining)
    assert len(str(held).encode()) < 5000
    with pytest.raises(LockNotAcquired) as refused, backend.lock(unique, blocking=False):
        raise AssertionError("granted")
    assert len(str(refused.value).encode()) < 1000


@pytest.mark.parametrize("child", ["notes", "read-me", "-", "lock-1x"])
def test_a_znode_without_a_sequence_number(backend, witness, unique, child):
    witness.create(f"{backend._recipe.root}/{unique}/{child}", b"x", makepath=True)
    with backend.lock(unique, blocking_timeout=PATIENCE) as lock:
        assert lock.owned()
    assert backend.describe(unique) is None
