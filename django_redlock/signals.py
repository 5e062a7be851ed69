"""Django signals for what happens to locks. The sender is the backend's class.

Each is sent with ``event``: a frozen `django_redlock.core.events.Event` (kind, lock, name, alias, waited, held, reason, holder).
What a receiver raises is logged and harms no lock.
"""

from __future__ import annotations

from django.dispatch import Signal

from .core.events import Event, logger

lock_acquired = Signal()
lock_released = Signal()
lock_refused = Signal()
lock_lost = Signal()

_BY_KIND = {"acquired": lock_acquired, "released": lock_released, "refused": lock_refused, "lost": lock_lost}


def announce(event: Event) -> None:
    """Send the signal for ``event``: the hook that the handler gives each backend."""
    signal = _BY_KIND[event.kind]
    if not signal.receivers:
        return
    for receiver, answer in signal.send_robust(sender=type(event.lock._store), event=event):
        if isinstance(answer, Exception):
            logger.error("receiver %r of lock_%s failed", receiver, event.kind, exc_info=answer)
