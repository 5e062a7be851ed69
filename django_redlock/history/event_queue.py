"""Passes lock events to listeners in a background thread. Listeners write the history and the metrics.

The thread or task that uses a lock only appends an `EventRecord` to a queue. Once a second a background thread passes
the records to the listeners. So a listener can't delay or break a lock, and signal handlers don't interrupt a listener.
"""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..core.events import Event, fault_hooks, logger
from ..core.process import fork
from ..core.process.mutex import new_mutex
from ..core.process.threads import Kind, start

INTERVAL = 1.0  # seconds between two flushes
MAX_RECORDS = 100_000  # records in the queue; further records replace the oldest
IDLE_ROUNDS = 10  # flushes without a record, after which the thread ends


class EventRecord(NamedTuple):
    """An `Event` without the lock handle, because a record must not keep the handle alive.

    ``at`` is the Unix time of the event in seconds. ``kind`` has two more values than in `Event`: ``"fault"`` (``name``
    is a node, ``reason`` the kind of error) and ``"duplicate"`` (``name`` is a task, ``reason`` the place where the
    duplicate was detected). ``backend`` is the backend of the lock; ``None`` if unknown. ``context`` is the value that
    `EventQueue.context` returned in the thread or task of the event. The other fields are those of `Event`.
    """

    at: float
    kind: str
    name: str
    alias: str = ""
    waited: float = 0.0
    held: float = 0.0
    reason: str = ""
    holder: str = ""
    primitive: str = ""
    backend: Any = None
    context: Any = None


Listener = Callable[[Sequence[EventRecord]], object]


class EventQueue:
    """A queue of lock events, a background thread, and the listeners that get the events.

    ``context``: a function or ``None``. The thread or task of each event calls the function, and its result becomes the
    ``context`` of the record.
    """

    def __init__(self) -> None:
        self.listeners: dict[str, Listener] = {}
        self.context: Callable[[], Any] | None = None
        self.reset()

    def reset(self) -> None:
        """Discard the records and the thread, which belong to the parent process. Called in the child of a fork."""
        self._queue: deque[EventRecord] = deque(maxlen=MAX_RECORDS)
        self._flushing = new_mutex()
        self._starting = new_mutex()
        self._thread: object = None

    def subscribe(self, name: str, listener: Listener) -> None:
        """Call ``listener`` with each batch of records, in the background. Replaces a listener with this ``name``."""
        self.listeners = {**self.listeners, name: listener}

    def unsubscribe(self, name: str) -> None:
        """Remove the listener with this ``name``, if there is one."""
        self.listeners = {other: listener for other, listener in self.listeners.items() if other != name}

    def record_event(self, event: Event, backend: Any = None) -> None:
        """Append a record of ``event`` on a lock of ``backend``, if there is a listener.

        Without Django, set this method as the ``hook`` of a backend.
        """
        if self.listeners:
            context = self.context() if self.context else None
            self.record(EventRecord(time.time(), event.kind, *event[2:], backend, context))

    def record_fault(self, node: str, reason: str) -> None:
        """Append a record of a fault of the node with the label ``node``. ``reason``: the kind of error."""
        self.record(EventRecord(time.time(), "fault", node, reason=reason))

    def record(self, record: EventRecord) -> None:
        """Append ``record``, if there is a listener. May be called from a signal handler."""
        if self.listeners:
            self._queue.append(record)
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:  # a second thread after an interrupted start does no harm
                self._thread = start(Kind.REPORTS, self._run)

    def _run(self) -> None:
        idle = 0
        while idle < IDLE_ROUNDS:
            time.sleep(INTERVAL)
            idle = 0 if self._queue else idle + 1
            self.flush()
        self._thread = None
        if self._queue:  # a record that came meanwhile has started no thread
            self._start()

    def flush(self) -> None:
        """Pass all records to the listeners. All earlier records have been processed when this method returns."""
        with fork.postponed, self._flushing:  # a child would inherit the mutexes that a listener holds
            records = [self._queue.popleft() for _ in range(len(self._queue))]
            for name, listener in self.listeners.items() if records else ():
                try:
                    listener(records)
                except Exception:
                    logger.exception("lock event listener %s failed", name)


event_queue = EventQueue()
atexit.register(event_queue.flush)
fault_hooks.append(event_queue.record_fault)
fork.on_fork(event_queue.reset)  # the parent flushes its own records
