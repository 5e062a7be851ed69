"""The lock that users hold: one handle, the same algorithm for threads and for asyncio."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Self

from ..errors import LockDeadlock, LockError, LockLost, LockNotAcquired, LockNotHeld, LockUnavailable
from . import holding
from .callers import caller, calling, running_loop
from .drivers import adrive, drive
from .events import logger
from .extension import under_way
from .held import Held
from .holding import Holding
from .lease import Claim, Lease, Refusal, Seconds, new_token
from .nesting import before_waiting, holder_in_the_way, warn_of_waiting
from .owner import Owner, describe_owner
from .renewal import renewal
from .replies import reason_of
from .requests import Fault, Flow, Sleep
from .terms import wait_seconds

_FOREVER = float("inf")
_ROUNDS = 5  # grants that came after their lease had ended, after which `acquire` gives up
_PAUSE = 0.01  # seconds after the first of them, twice that after the second, and so on
_UNANSWERED = Fault(TimeoutError("whether it was extended is unknown"))


class Lock(Holding):
    """A lock with the interface of ``threading.Lock``, and the same with ``a`` in front for asyncio.

    Made by ``backend.lock(name, …)``. A handle may be shared by threads or tasks and then behaves like one lock. After
    ``fork()`` the child's copy holds nothing. What it holds is renewed until it is released, ``max_hold`` has passed,
    the handle is garbage-collected or the process ends.
    """

    _warned = False  # that it was acquired again by the thread or task that holds it

    def acquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:
        """Take the lock; whether it was got. Waits ``timeout`` seconds at most, without an end by default.

        Raises ``ValueError`` and ``OverflowError`` as ``threading.Lock.acquire`` does, ``LockUnavailable`` when the
        store can't be asked, ``LockDeadlock`` instead of waiting without an end for a lock that this thread or task
        holds through another handle, and ``RuntimeError`` when called in a coroutine.
        """
        return isinstance(self._take(wait_seconds(blocking, timeout)), Lease)

    async def aacquire(self, blocking: bool = True, timeout: Seconds = -1) -> bool:  # noqa: ASYNC109 (as in threading)
        """`acquire` for asyncio."""
        return isinstance(await self._atake(wait_seconds(blocking, timeout)), Lease)

    def release(self) -> None:
        """Give the lock back, from any thread.

        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease has run out or another has
        taken over, ``LockUnavailable`` when the store can't be asked (the lock is then freed in the background as soon
        as it can, or by its ttl).
        """
        drive(self._releasing(), self._store.perform)

    async def arelease(self) -> None:
        """`release` for asyncio."""
        await adrive(self._releasing(), self._store.aperform)

    def extend(self, ttl: Seconds | None = None) -> float:
        """Replace what is left of the lease by ``ttl`` seconds (default: the lock's own) and return what is left then.

        Waits for a renewal that is under way. What is left is less after an extension to a shorter time that was never
        answered: it may reach the server after this one.
        Raises ``LockNotHeld`` when this handle holds nothing, ``LockLost`` when the lease is lost, ``LockUnavailable``
        when the store can't be asked, ``ValueError`` for a ttl that is not positive or above ``max_ttl``.
        """
        return drive(self._extending(ttl), self._store.perform)

    async def aextend(self, ttl: Seconds | None = None) -> float:
        """`extend` for asyncio."""
        return await adrive(self._extending(ttl), self._store.aperform)

    def locked(self) -> bool:
        """Whether anybody holds the lock, asked of the store. Raises ``LockUnavailable``."""
        return drive(self._describing(), self._store.perform) is not None

    async def alocked(self) -> bool:
        """`locked` for asyncio."""
        return await adrive(self._describing(), self._store.aperform) is not None

    def owned(self) -> bool:
        """Whether this handle holds the lock, asked of the store. Raises ``LockUnavailable``."""
        return self._is_mine(drive(self._describing(), self._store.perform))

    async def aowned(self) -> bool:
        """`owned` for asyncio."""
        return self._is_mine(await adrive(self._describing(), self._store.aperform))

    def __enter__(self) -> Self:
        self._remember(self._take(self._patience()))
        return self

    async def __aenter__(self) -> Self:
        self._remember(await self._atake(self._patience()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            drive(self._releasing(self._left()), self._store.perform)
        except LockError as failure:
            self._leave(failure, error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await adrive(self._releasing(self._left()), self._store.aperform)
        except LockError as failure:
            self._leave(failure, error)

    # ── the flows behind both colours ────────────────────────────────────────────────────────

    def _take(self, wait: float) -> Lease | Refusal:
        if running_loop() is not None:
            raise RuntimeError(
                f"lock {self.name!r}: acquire() would block the event loop; "
                "in a coroutine use `await lock.aacquire()` or `async with lock`"
            )
        self._loop = None
        return drive(self._acquiring(wait), self._store.perform)

    async def _atake(self, wait: float) -> Lease | Refusal:
        self._loop = running_loop()
        return await adrive(self._acquiring(wait), self._store.aperform)

    def _claim(self) -> Claim:
        terms = self._terms
        steady = terms.auto_renew and terms.max_hold is None and not terms.fencing
        owner = describe_owner(terms.owner, terms.ttl)
        return Claim(self.name, self._keys, new_token(), owner, terms.ttl, terms.fencing, steady=steady)

    def _acquiring(self, wait: float, since: float | None = None) -> Flow[Lease | Refusal]:
        store, primitive = self._store, self._primitive
        claim = self._claim()
        gate = (store.turnstile_for(primitive) if wait > 0 else None) or store.rule
        start = store.clock() if since is None else since
        deadline, late = start + wait, 0
        try:
            while True:
                asking = gate.acquire(primitive, claim, deadline)
                if wait == _FOREVER and renewal._live:  # else this process holds nothing
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
                self._report("refused", waited=store.clock() - start, reason=reason_of(error))
            else:  # interrupted or cancelled: a grant may be under way
                renewal.free(store, primitive, claim, waited=True)
            raise
        if isinstance(outcome, Lease):
            try:
                self._granted(outcome)
                if self._blocks:
                    self._goes_on(outcome)
                self._report("acquired", claim.owner, waited=now - start)
            except BaseException:  # interrupted, and so nobody learns that it was granted
                self._lease = outcome
                self._at_fork_reinit()
                raise
        else:
            self._report("refused", waited=now - start, reason="taken", holder=outcome.holder)
        return outcome

    def _check_nesting(self, claim: Claim) -> None:
        """Raise ``LockDeadlock`` when this thread or task would wait for itself."""
        holder = holder_in_the_way(self, claim, calling())
        if holder is self:
            if not self._warned:
                self._warned = True
                warn_of_waiting(self)
        elif holder is not None:
            renewal.free(self._store, self._primitive, claim, waited=True)
            raise LockDeadlock(self.name)

    def _too_late(self, lease: Lease, rounds: int, deadline: float) -> Flow[int]:
        """Free a lease that ended before it was granted, and pause; how many rounds have ended so.

        Raises ``LockUnavailable`` when there is no time for another round, or were too many.
        """
        store = self._store
        try:
            yield from store.rule.release(self._primitive, lease.claim)
        except BaseException:
            renewal.free(store, self._primitive, lease.claim)
            raise
        if lease.valid_until == -_FOREVER:  # a hand-over within the process that has failed
            return rounds
        left = deadline - store.clock()
        if left <= 0 or rounds + 1 == _ROUNDS:
            raise LockUnavailable(self.name, f"the store answers more slowly than the ttl ({lease.claim.ttl:g} s)")
        yield Sleep(min(left, _PAUSE * 2**rounds))
        return rounds + 1

    def _releasing(self, token: bytes | None = None) -> Flow[None]:
        before = self._lease
        try:
            lease, lost = self._give_up(token)
            held = self._store.clock() - lease.since
            if (extension := under_way.get(lease.claim.token)) is not None:
                # It would revive this token: don't hand the lease over locally.
                lease = lease._replace(claim=lease.claim._replace(steady=False))
        except BaseException as error:
            if before is not None and self._lease is None and not isinstance(error, LockError):  # interrupted
                renewal.free(self._store, self._primitive, before.claim)
            raise
        try:
            store, keep = self._store, self._terms.min_hold - held
            if not lost and (turnstile := store.turnstile_for(self._primitive)) is not None:
                freed = yield from turnstile.release(self._primitive, lease, keep)
            else:
                freed = yield from store.rule.release(self._primitive, lease.claim, keep)
        except BaseException as error:
            renewal.free(self._store, self._primitive, lease.claim)
            if not (lost and isinstance(error, LockError)):
                self._report("released", lease.mine.owner, held=held, reason="unconfirmed")
                raise
            freed = False
        finally:
            if extension is not None:
                self._cross(lease, extension)
        if lost or not freed:
            self._lost = True
            self._tell("the lease had ended before the release", lease)
            raise LockLost(self.name)
        self._report("released", lease.mine.owner, held=held)

    def _extending(self, ttl: Seconds | None) -> Flow[float]:
        wanted = self._terms.ttl if ttl is None else self._store.check_ttl(ttl)
        lease, wanted = yield from self._before_extending(wanted)
        try:
            longer = yield from self._store.rule.extend(self._primitive, lease, wanted)
        except BaseException:
            self._replaced(lease, _UNANSWERED)
            raise
        self._replaced(lease, longer)
        self.check()
        return self.remaining

    def _describing(self) -> Flow[Held | None]:
        return self._store.rule.describe(self.name, self._keys)

    def _is_mine(self, held: Held | None) -> bool:
        lease = self._current()
        return lease is not None and held is not None and held.is_of(lease)

    # ── with ─────────────────────────────────────────────────────────────────────────────────

    def _patience(self) -> float:
        timeout = self._terms.blocking_timeout
        return 0.0 if not self._terms.blocking else _FOREVER if timeout is None else timeout

    def _remember(self, outcome: Lease | Refusal) -> None:
        if isinstance(outcome, Lease):
            self._blocks.append((caller(), outcome.mine.token))
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
        with holding._mutex:
            if (place := self._block()) >= 0:
                self._blocks[place] = self._blocks[place][0], lease.mine.token

    def _left(self) -> bytes | None:
        """The token that the block took which is left now, by whichever thread or task.

        That is the innermost block of this one; if it has entered none, the block that was entered first.
        """
        with holding._mutex:
            if len(self._blocks) > 1:
                return self._blocks.pop(max(0, self._block()))[1]
            return self._blocks.pop()[1] if self._blocks else None

    def _leave(self, failure: LockError, error: BaseException | None) -> None:
        """What a failed release at the end of a block comes to. The body's own exception is never hidden."""
        lost = isinstance(failure, LockLost)
        raised = isinstance(failure, LockNotHeld) or (lost and self._terms.on_lost == "raise")
        if error is None and raised:
            raise failure
        if not (lost and self._told):
            # A store that can't be reached here harms nobody: the work was done under a valid lease.
            logger.warning("%s", failure)
