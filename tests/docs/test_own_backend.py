"""The custom backend of the documentation passes the conformance suite."""

import fcntl
import os
import sys
from importlib import import_module
from types import ModuleType

import pytest

from django_redlock.errors import LockUnavailable
from docs.examples import file_backend
from docs.examples.file_backend import FileBackend

with pytest.MonkeyPatch.context() as patch:  # in the documentation, the backend is a module of the reader's package
    patch.setitem(sys.modules, "shop", ModuleType("shop"))
    patch.setitem(sys.modules, "shop.file_backend", file_backend)
    printed = import_module("docs.examples.test_file_backend")

# An interrupt between open() and the `with` around it leaves a file for the garbage collector.
ignoring = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
TestFileBackend = ignoring(printed.TestFileBackend)


def test_missing_folder(tmp_path):
    """A file that can't be opened makes the store unavailable."""
    backend = FileBackend(tmp_path / "missing" / "locks.json")
    with pytest.raises(LockUnavailable, match=r"missing/locks\.json"):
        backend.lock("stock").acquire(blocking=False)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_while_the_file_is_locked(tmp_path):
    """A child that was forked while another thread had locked the file does not keep it locked."""
    backend, (reading, writing) = FileBackend(tmp_path / "locks.json"), os.pipe()
    with backend._entries():
        if (child := os.fork()) == 0:  # pragma: no cover
            os.close(writing)
            os.read(reading, 1)  # until the parent has looked
            os._exit(0)
    os.close(reading)
    try:
        with (tmp_path / "locks.json").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(writing)
        os.waitpid(child, 0)
