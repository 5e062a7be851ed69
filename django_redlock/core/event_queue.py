"""Work that what happens to locks gives rise to, done beside them: counting, writing down, exporting.

Whoever takes a lock only puts a `EventRecord` into a queue. Once a second a thread hands what has come to the
watchers. So no watcher can slow a lock down, or break it, or be in a state that a fork or a signal's handler must not
meet.
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

INTERVAL = 1.0  # seconds between two beats
MAX_RECORDS = 100_000  # moments that may wait for the next beat
IDLE_ROUNDS = (
    10  # beats without anything, after which the thread ends: before whoever looks for leaked threads gives up
)


class EventRecord(NamedTuple):
    """What is kept of an `Event`: not the lock, which would live on. ``at`` is Unix time, ``place`` the backend.

    Beside the kinds of an event there are ``"fault"`` (``name`` is a node, ``reason`` what was wrong there) and
    ``"duplicate"`` (``name`` is a task, ``reason`` where it was found out). ``context`` is what `EventQueue.context`
    returned in the thread or task where it happened.
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


_new = tuple.__new__  # without the call of a function in between
Work = Callable[[], None]
Listener = Callable[[Sequence[EventRecord]], Work | None]


class EventQueue:
    """The queue, the thread, and who watches. ``dropped`` counts moments for which there was no room."""

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
        """From now on hand what happens to ``see``, which does no I/O itself, and returns what there is to do, if any.

        A second one of a name replaces the first.
        """
        self.listeners = {**self.listeners, name: listener}

    def unsubscribe(self, name: str) -> None:
        """The opposite of `subscribe`."""
        self.listeners = {each: see for each, see in self.listeners.items() if each != name}

    # ── where locks are taken ────────────────────────────────────────────────────────────────

    def record_event(self, event: Event, backend: Any = None) -> None:
        """Put an event into the queue: a backend's hook, where there is no Django."""
        if self.listeners:
            context = self.context() if self.context else None
            self.record(_new(EventRecord, (time.time(), event[0], *event[2:], backend, context)))

    def record(self, record: EventRecord) -> None:
        """Put it into the queue, if there is room and anybody watches. Safe in a signal's handler."""
        if len(self._queue) >= MAX_RECORDS:
            self.dropped += 1
        elif self.listeners:
            self._queue.append(record)
            if not self._running.locked() and self._running.acquire(blocking=False):
                self._start()

    def _start(self) -> None:
        if sys.is_finalizing():  # up to Python 3.11 start() would wait for ever
            return
        try:
            threading.Thread(target=self._run, args=(self._running,), name="redlock-pulse", daemon=True).start()
        except RuntimeError:  # the interpreter is shutting down, and looks at the queue once more itself
            self._running.release()

    # ── the thread ───────────────────────────────────────────────────────────────────────────

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
        """Hand over what has come until now, and do what that gives to do. The thread does it, and tests may.

        When it returns all that is done, by another thread too.
        """
        self.drain()
        with self._doing:
            while self._work:
                _safely("what was to be done", self._work.popleft())

    def drain(self) -> None:
        """The part of it that does no I/O."""
        with fork.postponed, self._seeing:  # a child gets what watchers keep, and must not find it half done
            moments = [self._queue.popleft() for _ in range(len(self._queue))]
            for name, see in self.listeners.items() if moments else ():
                if work := _safely(name, see, moments):
                    self._work.append(work)


def _safely(name: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception:
        logger.exception("of what watches locks, this has failed: %s", name)


event_queue = EventQueue()
atexit.register(event_queue.flush)
fork.on_fork(event_queue._reset)  # what waits in the queue is the parent's to tell
