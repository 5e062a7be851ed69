"""The two steps of a task call, for Celery and ``django.tasks``: `submit_call` sends it, a `BodyRun` runs its body.

Both are coroutines that run in blocking code and under asyncio, see `django_redlock.call_styles`. A worker can postpone
a call whose lock is held: the store keeps the call's message until the running body ends. The process that ran this
body then sends the message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..call_styles import Blocking
from ..core.events import logger
from ..core.flow.requests import Flow, Sleep
from ..core.locks.hold import Hold
from ..core.locks.lock import Lock
from ..core.values import Refusal
from ..errors import LockError, LockNotAcquired, LockUnavailable
from .call import (
    AT_START,
    AT_SUBMIT,
    Conflict,
    Ending,
    TaskCall,
    conflict_of,
    decide,
    duplicate_result,
    notify_duplicate,
)
from .protection import TaskProtection
from .records import BodyLock, submit

_POLL_SECONDS = 0.05


# ── submit ───────────────────────────────────────────────────────────────────────────────────────


async def submit_call(
    style: Blocking,
    protection: TaskProtection,
    call: TaskCall,
    send: Callable[[], Awaitable[Any]],
    *,
    own: bool = False,
    must_send: bool = False,
    must_survive: bool = False,
) -> Any:
    """Write the record of the queued call, and send the call. Returns the result of ``send``, or a `Conflict`.

    The record is written first. Otherwise the call could end before the write, and its record would remain.

    ``own``: the call is a retry by the task that owns the record. ``must_send``: send the call even if it is refused; a
    worker then decides when to start the body. ``must_survive``: send the call even if the store is unavailable. Raises
    ``LockNotAcquired`` for a duplicate with the action "raise" or "wait", ``LockUnavailable``.
    """
    conflict: Conflict | None = None
    recorded = bool(call.mode.at_submit)
    try:
        if recorded:
            try:
                conflict = await style.drive(_record_flow(protection, call, own, must_send), protection.store)
            except LockNotAcquired:  # a duplicate has no record
                recorded = False
                raise
            except LockUnavailable as error:
                survives = must_survive or protection.options.on_store_error == "run"
                recorded = error.unconfirmed and not survives
                if not survives:
                    raise
                logger.warning("task %s[%s] is sent without a record: %s", call.task, call.task_id, error)
        if conflict is not None and not must_send:
            return conflict
        return await send()
    except BaseException:  # the record would make every later call a duplicate of a call that was not sent
        if recorded and conflict is None:
            await style.drive(protection.cancel_flow(call), protection.store)
        raise


def _record_flow(protection: TaskProtection, call: TaskCall, own: bool, must_send: bool) -> Flow[Conflict | None]:
    """Write the record of the queued call. Returns ``None``, or the `Conflict` of a call that was refused."""
    store: Any = protection.store
    on_conflict = protection.options.actions[0]
    wait: Any = protection.options.conflict_timeout
    deadline = store.clock() + wait
    action: Any = on_conflict
    while True:
        refusal: Refusal | None = yield from submit(call, own, action == "replace", store.algorithm)
        if refusal is None:
            return None
        conflict = conflict_of(call, "submit", refusal)
        if must_send:
            return conflict
        if callable(action):
            action = decide(on_conflict, conflict, AT_SUBMIT)
            if action == "replace":
                continue
        if action != "wait" or refusal.final or store.clock() > deadline:
            break
        yield Sleep(min(_POLL_SECONDS, wait))
    notify_duplicate(conflict, action == "log")
    if action in ("raise", "wait"):
        raise conflict.error()
    return conflict


# ── run ──────────────────────────────────────────────────────────────────────────────────────────


class BodyRun:
    """One run of a task's body with its lock held. Subclasses override the methods that depend on the framework.

    ``on_conflict``: the task's option for a call that is refused at its start. ``known``: the actions that the option
    may name. ``begun``: the lock is held, or the body runs without a lock.
    """

    known: tuple[str, ...] = tuple(action for action in AT_START if action != "retry")
    same_delivery = True  # the run knows the delivery id of its queued record
    begun = False

    def __init__(self, style: Blocking, protection: TaskProtection, call: TaskCall) -> None:
        self.style, self.protection, self.call = style, protection, call
        self.on_conflict = protection.options.actions[1]

    async def run(self, body: Callable[[], Awaitable[Any]]) -> Any:
        """Run ``body`` with the lock held, and return its value. A refused call gets the action of ``on_conflict``.

        Raises ``LockNotAcquired`` for a duplicate that must fail, ``LockUnavailable`` when the store is unavailable,
        and the errors of overridden methods.
        """
        handle: Lock | None = None
        outcome: Hold | Refusal | None = None
        wait: Any = self.protection.options.conflict_timeout
        waited = self.on_conflict == "wait"
        try:
            handle = self.protection.body_lock(self.call)
            outcome = await self._drive(self.acquire_flow(handle, wait if waited else 0.0))
            while isinstance(outcome, Refusal):
                conflict = self.conflict(outcome)
                action, failure = ("wait", conflict.error()) if waited else self._decided(conflict)
                if waited or action != "wait":
                    break
                waited, outcome = True, await self._drive(handle.acquire_flow(wait))
        except LockUnavailable as error:
            await self.on_unavailable(error)
            handle = outcome = None
        if isinstance(outcome, Refusal):
            notify_duplicate(conflict, action == "log")
            return await self.refused(conflict, action, failure)
        self.begun = True
        ending: Ending = "removed"
        try:
            value = await body()
            ending = self.ending(None)
            return value
        except BaseException as error:
            ending = self.ending(error)
            raise
        finally:
            if handle is not None:
                if message := await self._drive(end_flow(handle, ending)):
                    self.send(message)
            elif ending != "requeued":
                await self.cancel()

    async def _drive(self, flow: Flow[Any]) -> Any:
        return await self.style.drive(flow, self.protection.store)

    async def cancel(self) -> None:
        await self._drive(self.protection.cancel_flow(self.call, self.same_delivery))

    def _decided(self, conflict: Conflict) -> tuple[str, Exception]:
        """Return the action for a conflict, and the error to raise if the action says that the call fails."""
        if conflict.state == "replaced":
            return ("log" if self.on_conflict == "log" else "skip"), conflict.error()
        try:
            return decide(self.on_conflict, conflict, self.known), conflict.error()
        except Exception as error:  # noqa: BLE001  (the task fails with what the callable raised)
            return "raise", error

    def acquire_flow(self, handle: Lock, wait: float) -> Flow[Hold | Refusal]:
        return handle.acquire_flow(wait)

    def conflict(self, refusal: Refusal) -> Conflict:
        """Return the `Conflict` for a refused start. Subclasses raise if the call will be tried again or has ended."""
        return conflict_of(self.call, "start", refusal)

    async def refused(self, conflict: Conflict, action: str, failure: Exception) -> Any:
        """Return the result of a refused call, or raise ``failure``. ``action``: the action of ``on_conflict``."""
        await self.cancel()
        if action in ("raise", "wait"):
            raise failure
        return duplicate_result(conflict)

    async def on_unavailable(self, error: LockUnavailable) -> None:
        """Raise ``error``, unless ``on_store_error`` says that the body runs without a lock."""
        if self.protection.options.on_store_error != "run":
            await self.cancel()
            raise error
        logger.warning("task %s[%s] runs unprotected: %s", self.call.task, self.call.task_id, error)

    def ending(self, error: BaseException | None) -> Ending:
        """Return the effect of the body's end on the record. ``error``: the exception of the body, if any."""
        return "removed"

    def send(self, message: bytes) -> None:
        """Send the message of a call that was postponed until this body ended."""


def end_flow(lock: Lock, ending: Ending) -> Flow[bytes | None]:
    """Release the lock of a task's body. Returns the result of `message_flow`. ``ending``: the effect on the record."""
    if isinstance(lock, BodyLock):
        lock.running.ending = ending
    return message_flow(lock.release_flow())


def message_flow(flow: Flow[Any]) -> Flow[bytes | None]:
    """Run ``flow``, which ends a task's body. Returns the message of a call that waited for this end, or ``None``.

    The caller must send the message at once. The script that ends the body replies 1, or ``[1, message]``. A
    ``LockError`` is logged and not raised, because an error here must not change the outcome of the task.
    """
    message: bytes | None = None
    reply: Any = None
    try:
        while True:
            reply = yield flow.send(reply)
            if isinstance(reply, list) and reply[:1] == [1] and isinstance(reply[-1], bytes):
                message, reply = reply[1], 1
    except StopIteration:
        return message
    except LockError as error:
        logger.warning("%s", error)
        return message
    finally:
        flow.close()
