"""A suite that every lock backend must pass, blocking and asyncio, to be run with pytest on backends of one's own:

    from django_redlock.testing.conformance import BackendConformance

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def new_backend(self, my_server):
            return functools.partial(MyBackend, my_server.address)

A store that can't say who holds a lock takes `LockConformance`, which asks for `attempt`, `prolong` and `free` only. Leases
in here are as short as 0.15 s: a slower store sets `unit`.
"""

from __future__ import annotations

from .handles import HandleCases

__all__ = ["HandleConformance"]


class HandleConformance(HandleCases):
    """For a backend that grants everything: what one user sees of one handle."""
