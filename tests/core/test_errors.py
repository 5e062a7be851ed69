"""The error classes."""

import copy
import pickle

import pytest

from django_redlock import errors
from django_redlock.core.owner import Owner
from django_redlock.errors import (
    LockError,
    LockLost,
    LockNotAcquired,
    LockNotHeld,
    LockNotSupported,
    LockUnavailable,
    StaleLock,
)


class Mine(LockNotAcquired):
    """A user's error class, without a constructor."""


ERRORS = [
    LockError("stock", "is odd"),
    LockNotAcquired("stock", "is held by somebody", 2.5, Owner(host="there", pid=7)),
    StaleLock("stock", "was written under fencing token 2", 1, 2),
    LockNotHeld("stock", "is the parent's"),
    LockUnavailable("stock", "the store is unavailable", {"a:6379": ConnectionRefusedError(111, "refused")}),
    LockUnavailable("", "no node is available"),
    Mine("stock", "why", 3),
    *(getattr(errors, name)("stock") for name in errors.__all__),
    *(getattr(errors, name)() for name in errors.__all__),  # as mocks make them
]
PARENTS = {
    StaleLock: LockLost,
    LockNotAcquired: TimeoutError,
    LockNotHeld: RuntimeError,
    LockUnavailable: ConnectionError,
    LockNotSupported: NotImplementedError,
}


def facts(error):
    told = {key: repr(value) for key, value in vars(error).items()}
    return type(error), str(error), error.args, told


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_copies(error):
    """Every error is equal after copying and after pickling, which Celery does with errors."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert facts(pickle.loads(pickle.dumps(error, protocol))) == facts(error)  # noqa: S301  (our own)
    assert facts(copy.copy(error)) == facts(error)
    assert facts(copy.deepcopy(error)) == facts(error)


@pytest.mark.parametrize("name", ["stock", "a {b}", "{0}", "%s", "{self}", "\n", "'"])
def test_text_begins_with_the_lock(name):
    error = LockLost(name)
    assert (error.name, str(error).partition(": ")[0]) == (name, f"lock {name!r}")
    assert f"lock {name!r}: " + "{reason} %d" == str(LockLost(name, "{reason} %d"))
    assert str(LockUnavailable("", "no node is available")) == "no node is available"


def test_tree():
    """Every error is a LockError, and those with a counterpart among the builtins inherit from it, too."""
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), LockError)
    for error, parent in PARENTS.items():
        assert issubclass(error, parent)
    assert not issubclass(LockLost, OSError | RuntimeError)
