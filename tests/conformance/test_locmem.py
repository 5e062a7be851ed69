"""The conformance suite on the backend that lives in memory."""

import functools

import pytest

from django_redlock.backends.locmem import LocMemBackend
from django_redlock.testing.conformance import HandleConformance


class TestLocMem(HandleConformance):
    @pytest.fixture
    def new_backend(self, unique):
        return functools.partial(LocMemBackend, unique)
