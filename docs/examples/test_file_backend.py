"""The conformance suite for the example of a backend of one's own."""

import functools

import pytest
from shop.file_backend import FileBackend

from django_redlock.testing.conformance import LockConformance


class TestFileBackend(LockConformance):
    """Each test gets a file of its own."""

    @pytest.fixture
    def new_backend(self, tmp_path):
        return functools.partial(FileBackend, tmp_path / "locks.json")

    # This test releases and acquires again at once. Without subscribe(), that keeps other waiters out.
    test_child_uses_handle_and_backend = None
