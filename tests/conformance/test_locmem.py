"""The conformance suite on the backend that lives in memory."""

import functools

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.testing.conformance import BackendConformance


class TestLocMem(BackendConformance):
    one_process = True

    @pytest.fixture
    def new_backend(self, unique):
        return functools.partial(LocMemBackend, unique)
