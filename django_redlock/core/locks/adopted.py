"""A lock that another process has handed off, and that this process goes on with."""

from __future__ import annotations

from typing import Self

from ...errors import LockLost
from ..flow.requests import Flow
from ..lease_transfer import HandedOff
from ..process.caller import check_may_block
from ..values import Claim, Lease, Refusal
from .lock import Lock
from .multilock import MultiLock


class AdoptedLock(Lock):
    """A lock that another process has handed off, held from the start. ``backend.adopt(text)`` creates and returns it.

    The first ``with`` block acquires nothing and releases the adopted lease at its end. Otherwise the handle behaves
    like a `Lock`.
    """

    _handed: HandedOff | None = None  # while the request of adopt() is under way
    _unentered: Lease | None = None  # the adopted lease until a `with` block begins

    def adopt(self, handed: HandedOff) -> Self:
        """Make this handle the holder in place of the handle whose ``hand_off()`` made ``handed``.

        Raises ``LockLost`` if the lease that was handed off has ended or was adopted before, ``LockUnavailable`` when
        the store does not serve, and ``RuntimeError`` in a coroutine.
        """
        check_may_block(f"lock {self.name!r}: adopt()", "aadopt()")
        self._handed = handed
        return self._adopted(self._acquire(0.0))

    async def aadopt(self, handed: HandedOff) -> Self:
        """`adopt` for asyncio."""
        self._handed = handed
        return self._adopted(await self._aacquire(0.0))

    def _adopted(self, outcome: Lease | Refusal) -> Self:
        self._handed = None
        if isinstance(outcome, Refusal):
            raise LockLost(self.name, "the lease that was handed off has ended, or was adopted before")
        self._unentered = outcome
        return self

    def _request(self, claim: Claim, wait: float, deadline: float) -> Flow[Lease | Refusal]:
        handed, primitive = self._handed, self.store.adopting
        if handed is None or primitive is None:
            return (yield from super()._request(claim, wait, deadline))
        outcome = yield from self.store.algorithm.acquire(primitive, claim._replace(payload=handed.token), deadline)
        if isinstance(outcome, Refusal):
            return outcome
        number, before = outcome.fencing_token, handed.fencing_token
        if number is not None and before is not None:
            number = max(number, before + 1)
        return outcome._replace(claim=outcome.claim._replace(payload=claim.payload), fencing_token=number)

    def _begins_block(self) -> bool:
        """Let the first ``with`` block use the adopted lease, and return ``True``.

        Returns ``False`` for later blocks, and if the handle has stopped holding that lease, for example by
        ``release()``. Raises ``LockLost`` if the lease is lost.
        """
        lease, self._unentered = self._unentered, None
        if lease is None or self.current_lease() is None or not self._holds(lease):
            return False
        self.check()
        self._enter_block(lease)
        return True

    def __enter__(self) -> Self:
        return self if self._begins_block() else super().__enter__()

    async def __aenter__(self) -> Self:
        return self if self._begins_block() else await super().__aenter__()


class AdoptedMultiLock(AdoptedLock, MultiLock):
    """A multilock that another process has handed off, held from the start.

    ``backend.adopt(text)`` creates and returns it.
    """
