"""A suite that every lock backend passes, blocking and asyncio. Run it with pytest on a backend of your own:

    from django_redlock.testing.conformance import BackendConformance

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def new_backend(self, my_server):
            return functools.partial(MyBackend, my_server.address)

A store that can't say who holds a lock takes `LockConformance`, one that grants everything `HandleConformance`.
Another way to a store that has passed all of it takes `TransportConformance`: the cases that a connection can break.
Leases in here are as short as 0.06 s: a slower store sets `short`. A store whose locks end at the border of the process
sets `one_process`. With `BackendConformance`, a store that refuses kinds of locks names them in `lacks`: their cases
are not collected.
"""

from __future__ import annotations

from .arguments import ArgumentCases
from .exclusion import ExclusionCases
from .fairness import FairCases
from .handles import HandleCases
from .harness.kinds import KindCases
from .inspection import InspectionCases
from .interruptions import ForkCases, InterruptionCases
from .leases import LeaseCases
from .multilocks import MultilockCases
from .readwrite import ReadWriteCases
from .reentrant import ReentrantCases
from .semaphores import SemaphoreCases
from .shared_handles import SharedHandleCases
from .stripes import StripedCases

__all__ = ["BackendConformance", "HandleConformance", "LockConformance", "TransportConformance"]


class HandleConformance(HandleCases, ArgumentCases):
    """What one user sees of one handle."""


class LockConformance(HandleConformance, ExclusionCases, LeaseCases, InterruptionCases, ForkCases):
    """What makes a lock: it excludes, waits, ends, and survives what happens to its users."""


class BackendConformance(
    LockConformance,
    InspectionCases,
    FairCases,
    ReentrantCases,
    SemaphoreCases,
    ReadWriteCases,
    StripedCases,
    MultilockCases,
    SharedHandleCases,
    KindCases,
):
    """All that, what the store says of its locks, and the other kinds of locks, where it has them."""


class TransportConformance(ExclusionCases, LeaseCases, InspectionCases, InterruptionCases, ForkCases, KindCases):
    """What another connection to the same kind of server can break."""
