"""Lock events, and the hooks that receive them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

logger = logging.getLogger("django_redlock")
Kind = Literal["acquired", "released", "refused", "lost", "abandoned", "forced"]


class Event(NamedTuple):
    """One event of a lock.

    - ``kind``: ``"acquired"``, ``"released"``, ``"refused"``, ``"lost"``, ``"abandoned"`` (still renewed, although the
      holder's thread or task has ended) or ``"forced"`` (released by force).
    - ``lock``: the `Lock`, or the `Hold` if the handle can have several holds; ``None`` for ``"forced"``.
    - ``waited``, ``held``: seconds. ``primitive``: the kind of lock.
    - ``holder``: an owner as JSON: for ``"acquired"`` the holder, for ``"released"`` and ``"lost"`` the previous
      holder, for ``"refused"`` the holder that caused the refusal, for ``"forced"`` the operator.
    - ``reason``: for ``"refused"`` one of ``"taken"``, ``"quarantine"``, ``"unavailable"`` (the store can't be used)
      and ``"misused"`` (any other error, for example a key with a value of another type). For ``"released"``
      ``"unconfirmed"`` if the store could not be used, ``"handed_off"`` after ``hand_off()``, otherwise empty. For
      ``"lost"`` a sentence.
    """

    kind: Kind
    lock: Any
    name: str
    alias: str
    waited: float = 0.0
    held: float = 0.0
    reason: str = ""
    holder: str = ""
    primitive: str = ""


Hook = Callable[[Event], None]
fault_hooks: list[Callable[[str, str], None]] = []  # called with the label of a node and the kind of its error


def report(hook: Hook, event: Event) -> None:
    """Call ``hook`` with ``event``. Exceptions are logged and not raised, so that a hook can't break a lock."""
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook failed on %s of lock %r", event.kind, event.name)


def report_fault(node: str, reason: str) -> None:
    """Call the fault hooks. ``node``: the label of a node that has failed. ``reason``: the kind of error."""
    for hook in fault_hooks:
        try:
            hook(node, reason)
        except Exception:
            logger.exception("a fault hook failed on %s", node)
