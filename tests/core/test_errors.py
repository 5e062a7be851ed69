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

ERRORS = [
    LockError("stock", "is odd"),
    LockNotAcquired("stock", "is held by somebody", 2.5, Owner(host="there", pid=7)),
    LockNotAcquired("stock"),
    LockLost("stock"),
    StaleLock("stock", "was written under fencing token 2", 1, 2),
    LockNotHeld("stock", "is the parent's"),
    LockUnavailable("stock", "the store is unavailable", {"a:6379": ConnectionRefusedError(111, "refused")}),
    LockNotSupported("stock"),
    LockUnavailable("", "no node is available"),
]
PARENTS = {
    StaleLock: LockLost,
    LockNotAcquired: TimeoutError,
    LockNotHeld: RuntimeError,
    LockUnavailable: ConnectionError,
    LockNotSupported: NotImplementedError,
}


@pytest.mark.parametrize("name", errors.__all__)
def test_made_without_arguments(name):
    """Each error can be made without arguments, for mocks, and has a message."""
    error = getattr(errors, name)()
    assert str(error) == error.reason
    assert pickled(error).name == ""


def pickled(error, protocol=None):
    return pickle.loads(pickle.dumps(error, protocol))  # noqa: S301  (our own)


def facts(error):
    told = {key: repr(value) for key, value in vars(error).items()}
    return type(error), str(error), error.args, told


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling(error, protocol):
    """Every error is equal after pickling, which Celery does with errors."""
    assert facts(pickled(error, protocol)) == facts(error)


def test_text_begins_with_the_lock():
    """An error begins with the lock that it is about, if there is one."""
    assert str(LockLost("stock")) == "lock 'stock': the lease was lost, and another process may hold the lock now"
    assert str(LockUnavailable("", "no node is available")) == "no node is available"


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_copying(error):
    """Every error is equal after copying."""
    assert facts(copy.copy(error)) == facts(error)
    assert facts(copy.deepcopy(error)) == facts(error)


@pytest.mark.parametrize("error", [each for each in ERRORS if each.name], ids=repr)
def test_name_of_the_lock(error):
    """Every error carries the name of its lock, in the attribute and in its text."""
    assert error.name == "stock"
    assert "'stock'" in str(error)


def test_tree():
    """Every error is a LockError, and those with a counterpart among the builtins inherit from it, too."""
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), LockError)
    for error, parent in PARENTS.items():
        assert issubclass(error, parent)
    assert not issubclass(LockLost, OSError | RuntimeError)


def test_subclass():
    """A user's subclass without a constructor can be pickled, by name if it can be imported."""
    error = Mine("stock", "why", 3)
    assert facts(pickled(error)) == facts(error)


class Mine(LockNotAcquired):
    """A user's error class."""


@pytest.mark.parametrize("name", ["a {b}", "{0}", "%s", "{self}", "\n", "'"])
def test_names_with_format_characters(name):
    """A name with format characters appears unchanged in the error's text."""
    assert repr(name) in str(LockLost(name, "{reason} %d"))
