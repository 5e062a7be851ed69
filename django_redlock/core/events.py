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
    - ``holder``: an owner as JSON. For ``"acquired"`` the holder, for ``"released"`` and ``"lost"`` the previous
      holder, for ``"refused"`` the holder that caused the refusal, for ``"forced"`` the operator.
    - ``reason`` of the kind ``"refused"``: one of ``"taken"``, ``"quarantine"``, ``"unavailable"`` (the store does not
      serve) and ``"misused"`` (any other error, for example a key with a value of another type). Of the kind
      ``"released"``: ``"unconfirmed"`` if the store did not serve, ``"handed_off"`` after ``hand_off()``, otherwise
      empty. Of the kind ``"lost"``: a sentence.
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
    """Call ``hook`` with ``event``. Logs exceptions: a hook must not break a lock."""
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook failed on %s of lock %r", event.kind, event.name)


def report_fault(node: str, reason: str) -> None:
    """Call the fault hooks. ``node``: the label of a node that has not served. ``reason``: the kind of error."""
    for hook in fault_hooks:
        try:
            hook(node, reason)
        except Exception:
            logger.exception("a fault hook failed on %s", node)
