"""The custom backend of the documentation passes the conformance suite."""

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
