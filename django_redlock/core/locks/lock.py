"""The lock that users hold: one handle, the same algorithm for threads and for asyncio."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Never, Self

from ...errors import LockDeadlock, LockError, LockLost, LockNotAcquired, LockNotHeld, LockUnavailable
from ..context import caller, calling, running_loop
from ..events import logger
from ..flow.drivers import adrive, drive
from ..flow.replies import refusal_reason
from ..flow.requests import Fault, Flow, Sleep
from ..lock_info import LockInfo
from ..options import ACQUIRE_OPTIONS, unknown_options, wait_seconds
from ..owner import Owner, describe_owner
from ..renewal import renewal
from ..values import Claim, Lease, Refusal, Seconds, new_token
from . import lease_state
from .extensions import in_flight
from .lease_state import LeaseState
from .nesting import before_waiting, holder_in_the_way, warn_of_waiting

_FOREVER = float("inf")
_ROUNDS = 5  # grants that came after their lease had ended, after which `acquire` gives up
_PAUSE = 0.01  # seconds after the first of them, twice that after the second, and so on
_UNANSWERED = Fault(TimeoutError("whether it was extended is unknown"))


class Lock(LeaseState):
    """A lock with the interface of ``threading.Lock``, and the same with ``a`` in front for asyncio.

    Made by ``backend.lock(name, …)``. A handle may be shared by threads or tasks and then behaves like one lock. After
    ``fork()`` the child's copy holds nothing. What it holds is renewed until it is released, ``max_hold`` has passed,
    the handle is garbage-collected or the process ends.
    """

    _warned = False  # that it was acquired again by the thread or task that holds it

    def acquire(self, blocking: bool = True, timeout: Seconds = -1, **unknown: Never) -> bool:
        """Take the lock; whether it was got. Waits ``timeout`` seconds at most, without an end by default.

        Raises ``ValueError`` and ``OverflowError`` as ``threading.Lock.acquire`` does, ``LockUnavailable`` when the
        store can't be asked, ``LockDeadlock`` instead of waiting without an end for a lock that this thread or task
        holds through another handle, and ``RuntimeError`` when called in a coroutine.
        """
        if unknown:
            raise unknown_options("acquire", unknown, ACQUIRE_OPTIONS)
        return isinstance(self._acquire(wait_seconds(blocking, timeout)), Lease)

    async def aacquire(self, blocking: bool = True, timeout: Seconds = -1, **unknown: Never) -> bool:  # noqa: ASYNC109
        """`acquire` for asyncio."""
        if unknown:
            raise unknown_options("aacquire", unknown, ACQUIRE_OPTIONS)
        return isinstance(await self._aacquire(wait_seconds(blocking, timeout)), Lease)

    def release(self) -> None:
        """Give the lock back, from any thread.

        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease has run out or another has
        taken over, ``LockUnavailable`` when the store can't be asked (the lock is then freed in the background as soon
        as it can, or by its ttl).
        """
        drive(self.release_flow(), self.store.perform)

    async def arelease(self) -> None:
        """`release` for asyncio."""
        await adrive(self.release_flow(), self.store.aperform)

    def extend(self, ttl: Seconds | None = None) -> float:
        """Replace what is left of the lease by ``ttl`` seconds (default: the lock's own) and return what is left then.

        Waits for a renewal that is under way. What is left is less after an extension to a shorter time that was never
        answered: it may reach the server after this one.
        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease is lost, ``LockUnavailable``
        when the store can't be asked, ``ValueError`` for a ttl that is not positive or above ``max_ttl``.
        """
        return drive(self.extend_flow(ttl), self.store.perform)

    async def aextend(self, ttl: Seconds | None = None) -> float:
        """`extend` for asyncio."""
        return await adrive(self.extend_flow(ttl), self.store.aperform)

    def locked(self) -> bool:
        """Whether anybody holds the lock, asked of the store. Raises ``LockUnavailable``."""
        return drive(self.describe_flow(), self.store.perform) is not None

    async def alocked(self) -> bool:
        """`locked` for asyncio."""
        return await adrive(self.describe_flow(), self.store.aperform) is not None

    def owned(self) -> bool:
        """Whether this handle holds the lock, asked of the store. Raises ``LockUnavailable``."""
        return self._is_ours(drive(self.describe_flow(), self.store.perform))

    async def aowned(self) -> bool:
        """`owned` for asyncio."""
        return self._is_ours(await adrive(self.describe_flow(), self.store.aperform))

    def __enter__(self) -> Self:
        self._enter_block(self._acquire(self._blocking_seconds()))
        return self

    async def __aenter__(self) -> Self:
        self._enter_block(await self._aacquire(self._blocking_seconds()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            drive(self.release_flow(self._left()), self.store.perform)
        except LockError as failure:
            self._exit_block(failure, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await adrive(self.release_flow(self._left()), self.store.aperform)
        except LockError as failure:
            self._exit_block(failure, error)

    # ── the flows behind both colours ────────────────────────────────────────────────────────

    def _acquire(self, wait: float) -> Lease | Refusal:
        if running_loop() is not None:
            raise RuntimeError(
                f"lock {self.name!r}: acquire() would block the event loop; "
                "in a coroutine use `await lock.aacquire()` or `async with lock`"
            )
        self._loop = None
        return drive(self.acquire_flow(wait), self.store.perform)

    async def _aacquire(self, wait: float) -> Lease | Refusal:
        self._loop = running_loop()
        return await adrive(self.acquire_flow(wait), self.store.aperform)

    def new_claim(self) -> Claim:
        terms = self.options
        steady = terms.auto_renew and terms.max_hold is None and not terms.fencing
        owner = describe_owner(terms.owner, terms.ttl)
        asked = self.store.clock()
        return Claim(
            self.name, self.keys, new_token(), owner, terms.ttl, terms.fencing, transferable=steady, asked=asked
        )

    def acquire_flow(self, wait: float, since: float | None = None) -> Flow[Lease | Refusal]:
        store, primitive = self.store, self.primitive
        claim = self.new_claim()
        gate = (store.local_queue_for(primitive) if wait > 0 else None) or store.algorithm
        start = store.clock() if since is None else since
        deadline, late = start + wait, 0
        try:
            while True:
                asking = gate.acquire(primitive, claim, deadline)
                if wait == _FOREVER and renewal.entries:  # else this process holds nothing
                    asking = before_waiting(asking, partial(self._check_nesting, claim))
                outcome = yield from asking
                now = store.clock()
                if isinstance(outcome, Refusal) or now < outcome.valid_until:
                    break
                late = yield from self._too_late(outcome, late, deadline)
                outcome, claim = Refusal(0.0), claim._replace(token=new_token())
                if now >= deadline:
                    break
        except BaseException as error:
            if isinstance(error, LockError):
                self._emit("refused", waited=store.clock() - start, reason=refusal_reason(error))
            else:  # interrupted or cancelled: a grant may be under way
                renewal.release_later(store, primitive, claim, waited=True)
            raise
        if isinstance(outcome, Lease):
            try:
                self.on_granted(outcome)
                if self._blocks:
                    self._goes_on(outcome)
                self._emit("acquired", claim.owner, waited=now - start)
            except BaseException:  # interrupted, and so nobody learns that it was granted
                self._lease = outcome
                self._at_fork_reinit()
                raise
        else:
            self._emit("refused", waited=now - start, reason="taken", holder=outcome.holder)
        return outcome

    def _check_nesting(self, claim: Claim) -> None:
        """Raise ``LockDeadlock`` when this thread or task would wait for itself."""
        holder = holder_in_the_way(self, claim, calling())
        if holder is self:
            if not self._warned:
                self._warned = True
                warn_of_waiting(self)
        elif holder is not None:
            renewal.release_later(self.store, self.primitive, claim, waited=True)
            raise LockDeadlock(self.name)

    def _too_late(self, lease: Lease, rounds: int, deadline: float) -> Flow[int]:
        """Free a lease that ended before it was granted, and pause; how many rounds have ended so.

        Raises ``LockUnavailable`` when there is no time for another round, or were too many.
        """
        store = self.store
        try:
            yield from store.algorithm.release(self.primitive, lease.claim)
        except BaseException:
            renewal.release_later(store, self.primitive, lease.claim)
            raise
        if lease.valid_until == -_FOREVER:  # a hand-over within the process that has failed
            return rounds
        left = deadline - store.clock()
        if left <= 0 or rounds + 1 == _ROUNDS:
            raise LockUnavailable(self.name, f"the store answers more slowly than the ttl ({lease.claim.ttl:g} s)")
        yield Sleep(min(left, _PAUSE * 2**rounds))
        return rounds + 1

    def release_flow(self, token: bytes | None = None) -> Flow[None]:
        before = self._lease
        try:
            lease, lost = self.end_lease(token)
            held = self.store.clock() - lease.since
            if (extension := in_flight.get(lease.claim.token)) is not None:
                # It would revive this token: don't hand the lease over locally.
                lease = lease._replace(claim=lease.claim._replace(transferable=False))
        except BaseException as error:
            if before is not None and self._lease is None and not isinstance(error, LockError):  # interrupted
                renewal.release_later(self.store, self.primitive, before.claim)
            raise
        try:
            store, keep = self.store, self.options.min_hold - held
            if not lost and (local_queue := store.local_queue_for(self.primitive)) is not None:
                freed = yield from local_queue.release(self.primitive, lease, keep)
            else:
                freed = yield from store.algorithm.release(self.primitive, lease.claim, keep)
        except BaseException as error:
            renewal.release_later(self.store, self.primitive, lease.claim)
            if not (lost and isinstance(error, LockError)):
                self._emit("released", lease.effective_claim.owner, held=held, reason="unconfirmed")
                raise
            freed = False
        finally:
            if extension is not None:
                self._release_again(lease, extension)
        if lost or not freed:
            self._lost = True
            self._emit_lost("the lease had ended before the release", lease)
            raise LockLost(self.name)
        self._emit("released", lease.effective_claim.owner, held=held)

    def extend_flow(self, ttl: Seconds | None) -> Flow[float]:
        wanted = self.options.ttl if ttl is None else self.store.check_ttl(ttl)
        lease, wanted = yield from self._begin_extension(wanted)
        try:
            longer = yield from self.store.algorithm.extend(self.primitive, lease, wanted)
        except BaseException:
            self.on_extended(lease, _UNANSWERED)
            raise
        self.on_extended(lease, longer)
        self.check()
        return self.remaining

    def describe_flow(self) -> Flow[LockInfo | None]:
        return self.store.algorithm.describe(self.name, self.keys)

    def _is_ours(self, held: LockInfo | None) -> bool:
        lease = self.current_lease()
        return lease is not None and held is not None and held.matches(lease)

    # ── with ─────────────────────────────────────────────────────────────────────────────────

    def _blocking_seconds(self) -> float:
        timeout = self.options.blocking_timeout
        return 0.0 if not self.options.blocking else _FOREVER if timeout is None else timeout

    def _enter_block(self, outcome: Lease | Refusal) -> None:
        if isinstance(outcome, Lease):
            self._blocks.append((caller(), outcome.effective_claim.token))
            return
        holder = f" by {Owner.parse(outcome.holder)}" if outcome.holder else ""
        retry_after = None if outcome.remaining == _FOREVER else outcome.remaining
        raise LockNotAcquired(self.name, f"is held{holder}", retry_after, outcome.holder)

    def _block(self) -> int:
        """Which block is the innermost of this thread or task; -1: it has entered none."""
        me = caller()
        return next((place for place in reversed(range(len(self._blocks))) if self._blocks[place][0] == me), -1)

    def _goes_on(self, lease: Lease) -> None:
        """A block goes on with ``lease``, if what it took was released within it, as by `Condition.wait`."""
        with lease_state.lease_mutex:
            if (place := self._block()) >= 0:
                self._blocks[place] = self._blocks[place][0], lease.effective_claim.token

    def _left(self) -> bytes | None:
        """The token that the block took which is left now, by whichever thread or task.

        That is the innermost block of this one; if it has entered none, the block that was entered first.
        """
        with lease_state.lease_mutex:
            if len(self._blocks) > 1:
                return self._blocks.pop(max(0, self._block()))[1]
            return self._blocks.pop()[1] if self._blocks else None

    def _exit_block(self, failure: LockError, error: BaseException | None) -> None:
        """What a failed release at the end of a block comes to. The body's own exception is never hidden."""
        lost = isinstance(failure, LockLost)
        raised = isinstance(failure, LockNotHeld) or (lost and self.options.on_lost == "raise")
        if error is None and raised:
            raise failure
        if not (lost and self._loss_emitted):
            # A store that can't be reached here harms nobody: the work was done under a valid lease.
            logger.warning("%s", failure)
