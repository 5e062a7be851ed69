"""Waiters in local queues, and the requests with which a flow waits for a lock without asking Redis."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from ..values import Claim, Lease
from .wake_event import WakeEvent


class WaiterState(Enum):
    """The states of a waiter. The state changes under the mutex of the local queue only.

    =========  ===========================================================  ======================================
    state      meaning                                                      next
    =========  ===========================================================  ======================================
    QUEUED     in the queue, behind the leader                              any
    LEADING    out of the queue; asks the store, and waits in the store     LEFT
    RECEIVING  out of the queue; a release sends the hand-over request      GRANTED, LEADING, LEFT
    GRANTED    has a lease                                                  LEFT
    LEFT       waits no longer; a lease that arrives later is released
    =========  ===========================================================  ======================================
    """

    QUEUED = auto()
    LEADING = auto()
    RECEIVING = auto()
    GRANTED = auto()
    LEFT = auto()


class Waiter(WakeEvent):
    """A thread or task in a local queue. ``caller`` identifies the thread or task, which must create the waiter."""

    __slots__ = ("__weakref__", "caller", "claim", "lease", "state")

    def __init__(self, caller: int, claim: Claim) -> None:
        super().__init__()
        self.caller = caller
        self.claim = claim
        self.state = WaiterState.QUEUED
        self.lease: Lease | None = None

    def lead(self) -> None:
        """Wake the waiter, so that it asks the store."""
        self.state = WaiterState.LEADING
        self.set()

    def grant(self, lease: Lease) -> None:
        """Give ``lease`` to the waiter, and wake the waiter."""
        self.lease, self.state = lease, WaiterState.GRANTED
        self.set()


class AwaitTurn(NamedTuple):
    """A request that a flow yields: wait until ``event`` is set, for ``seconds`` at most."""

    event: WakeEvent
    seconds: float
