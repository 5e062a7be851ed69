"""What the core tells the outside: one hook, which receives one frozen event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from .holding import Holding

logger = logging.getLogger("django_redlock")


class Event(NamedTuple):
    """Something that happened to a lock. ``waited`` and ``held`` are seconds.

    ``holder`` says as JSON who has it, had it, or is in the way; after a force release who released. ``reason`` of a
    refusal: ``"taken"``, ``"quarantine"``, ``"unavailable"`` (the store can't be asked) or ``"misused"`` (its key holds
    something else); of a release ``"unconfirmed"`` when the store could not be asked; of a loss a sentence.
    ``primitive`` is the kind of lock. After a force release there is no ``lock``.
    """

    kind: Literal["acquired", "released", "refused", "lost", "forced"]
    lock: Holding | None
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
