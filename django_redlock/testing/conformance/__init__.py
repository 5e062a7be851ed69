"""A test suite that every lock backend passes, blocking and asyncio. Run it with pytest on a backend of your own:

    from django_redlock.testing.conformance import BackendConformance

    class TestMyBackend(BackendConformance):
        @pytest.fixture
        def new_backend(self, my_server):
            return functools.partial(MyBackend, my_server.address)

Use `LockConformance` for a store that can't report holders, and `HandleConformance` for a backend that grants every
acquire. If a store has passed the whole suite, use `TransportConformance` to test another way of connecting to it.

Leases in the suite that end by themselves are as short as 0.06 s, and those that are renewed last 3 s. For a slower
store, set these two times, the class attributes `short` and `renewable`, in seconds. If the locks of a store don't
exclude other processes, set `one_process = True`. If a store does not support all kinds of locks, list the missing
kinds in `lacks`, and `BackendConformance` does not collect their cases. If it does not support ``hand_off()`` or
``every=`` or ``fencing=``, add ``"hand_off"``, ``"every"`` or ``"fencing"`` to `lacks`.
"""

from __future__ import annotations

from .arguments import ArgumentCases
from .each_kind import KindCases
from .exclusion import ExclusionCases
from .hand_offs import HandOffCases
from .handles import HandleCases
from .inspection import InspectionCases
from .interruptions import ForkCases, InterruptionCases
from .kinds.fairness import FairCases
from .kinds.multilocks import MultilockCases
from .kinds.readwrite import ReadWriteCases
from .kinds.reentrant import ReentrantCases
from .kinds.semaphores import SemaphoreCases
from .kinds.stripes import StripedCases
from .leases import LeaseCases
from .periods import PeriodCases
from .shared_handles import SharedHandleCases

__all__ = ["BackendConformance", "HandleConformance", "LockConformance", "TransportConformance"]


class HandleConformance(HandleCases, ArgumentCases):
    """Cases that every backend passes, even one that grants every acquire: methods of a handle, and arguments."""


class LockConformance(HandleConformance, ExclusionCases, LeaseCases, InterruptionCases, ForkCases):
    """Cases for exclusion, waiting, leases, interruptions and forks."""


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
    HandOffCases,
    PeriodCases,
    KindCases,
):
    """All cases: locks, inspection, and the other kinds of locks that the store supports."""


class TransportConformance(ExclusionCases, LeaseCases, InspectionCases, InterruptionCases, ForkCases, KindCases):
    """Cases whose result may depend on the kind of connection to the store, such as TLS or a Unix socket."""
