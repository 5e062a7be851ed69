"""What the core tells the outside: one hook, which receives one frozen event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from .owner import Owner

logger = logging.getLogger("django_redlock")


class LockHandle(Protocol):
    """A lock as the receivers of events and ``on_lost`` see it."""

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
    """Something that happened to a lock. ``waited`` and ``held`` are seconds.

    ``holder`` says as JSON who has it, had it, or is in the way; after a force release who released. ``reason`` of a
    refusal: ``"taken"``, ``"quarantine"``, ``"unavailable"`` (the store can't be asked) or ``"misused"`` (its key holds
    something else); of a release ``"unconfirmed"`` when the store could not be asked; of a loss a sentence.
    ``primitive`` is the kind of lock. After a force release there is no ``lock``.
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
    """Hand ``event`` to ``hook``. What the hook raises is logged: watching a lock must not break it."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook failed on %s of lock %r", event.kind, event.name)
