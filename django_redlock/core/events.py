"""Events of locks, and the hook that receives them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from .owner import Owner

logger = logging.getLogger("django_redlock")


class LockHandle(Protocol):
    """The part of a lock that receivers of events and ``on_lost`` may use."""

    name: str

    @property
    def token(self) -> str | None: ...

    @property
    def owner(self) -> Owner | None: ...

    @property
    def fencing_token(self) -> int | None: ...

    @property
    def remaining(self) -> float: ...

    @property
    def lost(self) -> bool: ...

    def check(self) -> None: ...


class Event(NamedTuple):
    """One event of a lock. ``waited`` and ``held`` are seconds, ``primitive`` is the kind of lock.

    ``holder`` is a description as JSON: of the holder, of the previous holder, or of the holder that caused a refusal;
    after a force release, of the operator. ``lock`` is ``None`` after a force release.

    ``reason`` of a refusal is ``"taken"``, ``"quarantine"``, ``"unavailable"`` (the store does not serve) or
    ``"misused"`` (the key holds another type of value); of a release ``"unconfirmed"`` when the store did not serve; of
    a loss a sentence.
    """

    kind: Literal["acquired", "released", "refused", "lost", "forced"]
    lock: LockHandle | None
    name: str
    alias: str
    waited: float = 0.0
    held: float = 0.0
    reason: str = ""
    holder: str = ""
    primitive: str = ""


Hook = Callable[[Event], None]


def report(hook: Hook | None, event: Event) -> None:
    """Call ``hook`` with ``event``. An exception is logged: a listener must not break a lock."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook failed on %s of lock %r", event.kind, event.name)
