"""The custom backend of the documentation passes the conformance suite."""

import fcntl
import functools
import os
import runpy

import pytest

from django_redlock.testing.conformance import LockConformance
from tests.docs.pages import DOCS

FileBackend = runpy.run_path(str(DOCS / "examples" / "file_backend.py"))["FileBackend"]


# An interrupt between open() and the `with` around it leaves a file for the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestFileBackend(LockConformance):
    """The documentation's example, on a separate file for each test."""

    @pytest.fixture
    def new_backend(self, tmp_path):
        return functools.partial(FileBackend, tmp_path / "locks.json")

    test_uses_everything = None  # releases and asks again at once, which keeps out waiters that no store wakes


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
