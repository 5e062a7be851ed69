"""Django signals for the events of locks. The sender is the backend's class.

Each signal is sent with ``event``, an immutable `django_redlock.core.events.Event`: kind, lock, name, alias, waited,
held, reason, holder, primitive. A receiver runs inside the call that causes the event, such as ``acquire()``, so it
must be fast. ``lock_abandoned`` and, if the renewal detects the loss, ``lock_lost`` are sent from a background thread.
A receiver may be a coroutine function unless asyncio code uses the lock. Django logs exceptions of receivers (logger
``django.dispatch``); the lock is not affected.
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
lock_abandoned = Signal()
lock_forced = Signal()

# Sent with ``conflict``, a `django_redlock.single_instance.call.Conflict`; the sender is the task's name.
task_duplicate = Signal()

_BY_KIND = {
    "acquired": lock_acquired,
    "released": lock_released,
    "refused": lock_refused,
    "lost": lock_lost,
    "abandoned": lock_abandoned,
    "forced": lock_forced,
}


def announce(event: Event, sender: type) -> None:
    """Log ``event`` at level DEBUG and send its signal.

    The log record has all fields of the event except ``lock``, with the prefix ``lock_``. A loss is not logged here,
    because the logger ``django_redlock`` already warns of it.
    """
    if event.kind != "lost" and logger.isEnabledFor(logging.DEBUG):
        facts = {f"lock_{key}": value for key, value in event._asdict().items() if key != "lock"}
        logger.debug("lock %r on %r was %s", event.name, event.alias, event.kind, extra=facts)
    signal = _BY_KIND[event.kind]
    if signal.receivers:
        signal.send_robust(sender=sender, event=event)
