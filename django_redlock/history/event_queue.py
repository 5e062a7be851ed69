"""Hands lock events to listeners in a background thread. The listeners keep counters, the history and metrics.

The thread or task that uses a lock only appends an `EventRecord` to a queue. Once a second a background thread hands
the records to the listeners. So a listener can't delay or break a lock, and no fork or signal handler interrupts a
listener.
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
MAX_RECORDS = 100_000  # records in the queue; further records are dropped
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


Work = Callable[[], None]
Listener = Callable[[Sequence[EventRecord]], Work | None]


class EventQueue:
    """A queue of lock events, a background thread, and the listeners that get the events.

    ``dropped`` counts the records that were discarded because the queue was full. ``context``: a function or ``None``.
    The thread or task of each event calls the function, and its result becomes the ``context`` of the record.
    """

    def __init__(self) -> None:
        self.listeners: dict[str, Listener] = {}
        self.context: Callable[[], Any] | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all records and the thread, which belong to the parent of a fork."""
        self.dropped = 0
        self._queue: deque[EventRecord] = deque()
        self._work: deque[Work] = deque()
        self._drain_mutex = new_mutex()
        self._flush_mutex = new_mutex()
        self._mutex = new_mutex()
        self._run_id: object = None  # identifies the thread that runs or is being started; `None`: none

    def subscribe(self, name: str, listener: Listener) -> None:
        """Call ``listener`` with each batch of records. Replaces an earlier listener with this ``name``.

        The listener must do no I/O. It may return a function, which the background thread calls for I/O.
        """
        self.listeners = {**self.listeners, name: listener}

    def unsubscribe(self, name: str) -> None:
        """Remove the listener with this ``name``, if there is one."""
        self.listeners = {other: listener for other, listener in self.listeners.items() if other != name}

    # ── in the thread of the event ───────────────────────────────────────────────────────────

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
        """Append ``record``, if there is a listener. Counts the record as dropped if the queue is full.

        A signal handler may call this method.
        """
        if len(self._queue) >= MAX_RECORDS:
            self.dropped += 1
        elif self.listeners:
            self._queue.append(record)
            if self._run_id is None:
                self._start()

    def _start(self) -> None:
        run_id, started = object(), None
        try:
            with self._mutex:
                if self._run_id is not None:
                    return
                self._run_id = run_id
            started = start(Kind.REPORTS, self._run, run_id, postpones_forks=False)
        finally:
            if started is None and self._run_id is run_id:  # at the end of the interpreter `atexit` flushes
                self._run_id = None

    # ── in the background thread ─────────────────────────────────────────────────────────────

    def _run(self, run_id: object) -> None:
        idle = 0
        while self._run_id is run_id:  # otherwise its start was interrupted: another thread may run
            time.sleep(INTERVAL)
            idle = 0 if self._queue else idle + 1
            with fork.postponed:
                self.flush()
            if idle >= IDLE_ROUNDS:
                self._run_id = None
                with self._mutex:
                    if self._queue and self._run_id is None:
                        self._run_id = run_id

    def flush(self) -> None:
        """Hand all records to the listeners, and call the functions that the listeners return.

        Waits if another thread is flushing, so that all earlier records have been processed when this method returns.
        """
        self.drain()
        with self._flush_mutex:
            while self._work:
                _logged("background work", self._work.popleft())

    def drain(self) -> None:
        """Hand all records to the listeners. The functions that the listeners return are called by `flush`, not here.

        Does no I/O.
        """
        with fork.postponed, self._drain_mutex:  # a fork copies the state of listeners, which must be complete
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
fault_hooks.append(event_queue.record_fault)
fork.on_fork(event_queue.reset)  # the parent flushes its own records
