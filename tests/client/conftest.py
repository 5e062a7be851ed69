"""Backends on separate nodes, as in `tests.backends`."""

from tests.backends.conftest import client_of, servers, two, woken_only

__all__ = ["client_of", "servers", "two", "woken_only"]
