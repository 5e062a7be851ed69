"""Events of locks, handed to listeners in the background: for counters, the history and metrics.

The thread or task that uses a lock only appends an `EventRecord` to a queue. Once a second a background thread hands
the records to the listeners. So a listener can't delay or break a lock, and no fork or signal handler interrupts it.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import fork
from .events import Event, logger

INTERVAL = 1.0  # seconds between two flushes
MAX_RECORDS = 100_000  # records in the queue; more are dropped
IDLE_ROUNDS = 10  # flushes without a record, after which the thread ends


class EventRecord(NamedTuple):
    """An `Event` without its lock, which would be kept alive. ``at`` is Unix time.

    There are two more kinds than in `Event`: ``"fault"`` (``name`` is a node, ``reason`` the error) and ``"duplicate"``
    (``name`` is a task, ``reason`` the place where the duplicate was detected). ``context`` is the result of
    `EventQueue.context` in the thread or task of the event.
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


_new = tuple.__new__  # saves one Python call
Work = Callable[[], None]
Listener = Callable[[Sequence[EventRecord]], Work | None]


class EventQueue:
    """The queue, its thread and its listeners. ``dropped`` counts records for which the queue had no room."""

    def __init__(self) -> None:
        self.listeners: dict[str, Listener] = {}
        self.context: Callable[[], Any] | None = None
        self._reset()

    def _reset(self) -> None:
        self.dropped = 0
        self._queue: deque[EventRecord] = deque()
        self._work: deque[Work] = deque()
        self._seeing = threading.Lock()
        self._doing = threading.RLock()
        self._running = threading.Lock()  # held by the thread, or by who starts it

    def subscribe(self, name: str, listener: Listener) -> None:
        """Call ``listener`` with each batch of records. It does no I/O; it may return a function that does.

        A listener of the same name is replaced.
        """
        self.listeners = {**self.listeners, name: listener}

    def unsubscribe(self, name: str) -> None:
        """Remove the listener ``name``."""
        self.listeners = {other: listener for other, listener in self.listeners.items() if other != name}

    # ── in the thread of the event ───────────────────────────────────────────────────────────

    def record_event(self, event: Event, backend: Any = None) -> None:
        """Append a record of ``event``. It is the hook of backends that are used without Django."""
        if self.listeners:
            context = self.context() if self.context else None
            self.record(_new(EventRecord, (time.time(), event[0], *event[2:], backend, context)))

    def record(self, record: EventRecord) -> None:
        """Append ``record``, if there is room and a listener. Safe in a signal handler."""
        if len(self._queue) >= MAX_RECORDS:
            self.dropped += 1
        elif self.listeners:
            self._queue.append(record)
            if not self._running.locked() and self._running.acquire(blocking=False):
                self._start()

    def _start(self) -> None:
        if sys.is_finalizing():  # up to Python 3.11, start() would hang
            return
        try:
            threading.Thread(target=self._run, args=(self._running,), name="redlock-pulse", daemon=True).start()
        except RuntimeError:  # the interpreter shuts down; `atexit` flushes
            self._running.release()

    # ── in the background thread ─────────────────────────────────────────────────────────────

    def _run(self, running: threading.Lock) -> None:
        idle = 0
        while True:
            time.sleep(INTERVAL)
            idle = 0 if self._queue else idle + 1
            with fork.postponed:
                self.flush()
            if idle >= IDLE_ROUNDS:
                running.release()
                if not (self._queue and running.acquire(blocking=False)):
                    return

    def flush(self) -> None:
        """Hand all records to the listeners, and run the functions that they return.

        When this returns, the work for earlier records is done, also where another thread has done it.
        """
        self.drain()
        with self._doing:
            while self._work:
                _logged("background work", self._work.popleft())

    def drain(self) -> None:
        """The part of `flush` that does no I/O."""
        with fork.postponed, self._seeing:  # the state of listeners is copied by a fork, and must be complete
            records = [self._queue.popleft() for _ in range(len(self._queue))]
            for name, listener in self.listeners.items() if records else ():
                if work := _logged(name, listener, records):
                    self._work.append(work)


def _logged(name: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception:
        logger.exception("lock event listener %s failed", name)


event_queue = EventQueue()
atexit.register(event_queue.flush)
fork.on_fork(event_queue._reset)  # the parent flushes its own records
