"""Django signals for what happens to locks. The sender is the backend's class.

Each is sent with ``event``, a frozen `django_redlock.core.events.Event`: kind, lock, name, alias, waited, held, reason,
holder, primitive. A receiver runs where it happened, in the same thread, and had better be quick; ``lock_lost`` comes
from a thread of its own. Where threads lock, a receiver may be a coroutine function; where coroutines lock, plain
functions only. What a receiver raises is logged by Django (logger ``django.dispatch``) and harms no lock.
"""

from __future__ import annotations

import logging

from django.dispatch import Signal

from .core.events import Event

logger = logging.getLogger("django_redlock.events")

lock_acquired = Signal()
lock_released = Signal()
lock_refused = Signal()
lock_lost = Signal()
lock_forced = Signal()

# Sent with ``conflict``, a `django_redlock.celery.conflicts.Conflict`; the sender is the task's name.
task_duplicate = Signal()

_BY_KIND = {
    "acquired": lock_acquired,
    "released": lock_released,
    "refused": lock_refused,
    "lost": lock_lost,
    "forced": lock_forced,
}


def announce(event: Event, sender: type) -> None:
    """Log ``event`` and send its signal. The log record has all fields of the event, with ``lock_`` before their names.

    A loss is a warning of the logger ``django_redlock``, which says it with and without Django, and so isn't said here.
    """
    if event.kind != "lost" and logger.isEnabledFor(logging.DEBUG):
        facts = {f"lock_{key}": value for key, value in event._asdict().items() if key != "lock"}
        logger.debug("lock %r on %r was %s", event.name, event.alias, event.kind, extra=facts)
    signal = _BY_KIND[event.kind]
    if signal.receivers:
        signal.send_robust(sender=sender, event=event)
