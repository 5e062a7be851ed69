"""Lock events, and the hook that receives the events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from .owner import Owner

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


def report(hook: Hook | None, event: Event) -> None:
    """Call ``hook`` with ``event``, unless ``hook`` is ``None``. Logs exceptions: a hook must not break a lock."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception:
        logger.exception("the event hook failed on %s of lock %r", event.kind, event.name)


def emit(hold: Any, kind: Kind, waited: float = 0.0, held: float = 0.0, reason: str = "") -> None:
    """Report an event of a `Hold` to the hook of its store. ``waited``, ``held``: seconds."""
    store = hold.store
    if store.hook is not None:
        holder, primitive = hold.lease.claim.owner.decode(errors="replace"), hold.primitive.kind
        report(store.hook, Event(kind, hold.subject, hold.name, store.alias, waited, held, reason, holder, primitive))


def report_abandoned(hold: Any) -> None:
    """Log and emit that ``hold`` is still renewed, although the thread or task that acquired it has ended."""
    owner = Owner.parse(hold.lease.claim.owner)
    logger.warning(
        "lock %r is still held and renewed, but %s, which acquired it, has ended; use `with`, release it "
        "in another thread, or limit it with max_hold",
        hold.name,
        owner.task or owner.thread,
    )
    emit(hold, "abandoned", held=hold.store.clock() - hold.lease.since)


def report_fault(node: str, reason: str) -> None:
    """Call the fault hooks. ``node``: the label of a node that has not served. ``reason``: the kind of error."""
    for hook in fault_hooks:
        try:
            hook(node, reason)
        except Exception:
            logger.exception("a fault hook failed on %s", node)
