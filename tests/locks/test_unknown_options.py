"""Options that a backend's methods don't have."""

import pytest

from django_redlock.backends.locmem import LocMemBackend

METHODS = {
    "lock": lambda backend, **options: backend.lock("x", **options),
    "rlock": lambda backend, **options: backend.rlock("x", **options),
    "semaphore": lambda backend, **options: backend.semaphore("x", limit=2, **options),
    "rwlock": lambda backend, **options: backend.rwlock("x", **options),
    "striped": lambda backend, **options: backend.striped("x", 3, **options),
    "multilock": lambda backend, **options: backend.multilock(["x", "y"], **options),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("option", "hint"),
    [("timeout", r"use ttl \(.*\) or blocking_timeout"), ("expire", "use ttl "), ("max_hol", "use max_hold ")],
)
def test_hints(method, option, hint):
    """An option of redis-py or a mistyped one raises an error with the method and the option that is meant."""
    with pytest.raises(TypeError, match=rf"^{method}\(\) has no option '{option}'; {hint}"):
        METHODS[method](LocMemBackend("hints"), **{option: 5})
