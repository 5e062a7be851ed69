"""What the core tells the outside: one hook, which receives one frozen event."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from .holding import Holding

logger = logging.getLogger("django_redlock")


class Event(NamedTuple):
    """Something that happened to a lock. Times are seconds; ``reason`` and ``holder`` explain a refusal or a loss."""

    kind: Literal["acquired", "released", "refused", "lost"]
    lock: Holding
    name: str
    alias: str
    waited: float = 0.0
    held: float = 0.0
    reason: str = ""
    holder: str = ""


Hook = Callable[[Event], None]


def report(hook: Hook | None, event: Event) -> None:
    """Hand ``event`` to ``hook``. What the hook raises is logged: watching a lock must not break it."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook failed on %s of lock %r", event.kind, event.name)
