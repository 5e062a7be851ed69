"""One ZooKeeper session: connected when it is first needed, every request limited in time, its end told at once.

The only module that imports kazoo, and not before a session is made.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ...core.fork import on_fork

READS = {"get", "get_children", "exists"}  # what may be asked twice
CONTAINER = 4  # the flag of a znode that the servers remove when its last child has gone (ZooKeeper 3.5.1)


class ZooKeeperError(Exception):
    """ZooKeeper did not do what it was asked."""


class Unanswered(ZooKeeperError):
    """No answer, or the session or connection ended first: what was asked may have been done, or be done yet."""


class Declined(ZooKeeperError):
    """The server says that it won't: no permission, say."""


class NoZnode(Exception):
    """There is no such znode."""


def kazoo_client() -> Any:
    """kazoo's client class. Raises ``ModuleNotFoundError`` that says what to install."""
    try:
        from kazoo.client import KazooClient
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'ZooKeeperBackend needs the package kazoo: pip install "django-redlock[zookeeper]"', name=error.name
        ) from error
    return KazooClient


def _errors() -> dict[type[Exception], type[Exception]]:
    """What kazoo's errors mean, the first that fits."""
    from kazoo import exceptions as theirs

    return {
        theirs.NoNodeError: NoZnode,
        theirs.ConnectionLoss: Unanswered,
        theirs.ConnectionClosedError: Unanswered,
        theirs.OperationTimeoutError: Unanswered,
        theirs.SessionExpiredError: Unanswered,
        theirs.SessionMovedError: Unanswered,
        Exception: Declined,
    }


class Session:
    """Asks of an ensemble. ``timeout`` is the session's, as granted by the server; ``ended`` is called when it ends.

    Losing the connection doesn't end the session: kazoo reconnects in the background. Session, threads and socket end
    when ``owner``, to which they have no reference, has been garbage-collected. Seconds throughout.
    """

    def __init__(
        self,
        owner: object,
        hosts: str,
        timeout: float,
        answer_timeout: float,
        clock: Callable[[], float],
        ended: Callable[[], None],
    ) -> None:
        from kazoo.protocol.states import KazooState
        from kazoo.retry import KazooRetry

        self.timeout = timeout
        self._answer_timeout, self._clock = answer_timeout, clock
        self._errors = _errors()
        self.client = client = kazoo_client()(
            hosts, timeout=timeout, connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0)
        )
        self._adjust(client)
        client.add_listener(lambda state: ended() if state == KazooState.LOST else None)
        self._live: threading.Event = client.start_async()
        self._finalizer = _stopped_with(owner, self)

    def _adjust(self, client: Any) -> None:
        """What kazoo has no option for.

        It keeps the session timeout that the server grants, which may be shorter than ours, to itself. It would wait
        for a server that takes a connection and says nothing, as one that is just starting, until the session is over.
        And while it wakes its thread it takes whatever is raised, a ``KeyboardInterrupt`` too, for a closed connection.
        """
        from kazoo.handlers.threading import AsyncResult
        from kazoo.protocol.serialization import Connect

        class Pending(AsyncResult):  # type: ignore[misc]
            def set_exception(self, exception: BaseException) -> None:
                raised = sys.exception()
                if raised is not None and not isinstance(raised, Exception):
                    raise raised
                super().set_exception(exception)

        handler, connection = client.handler, client._connection
        invoke, create_connection = connection._invoke, handler.create_connection

        def greet(timeout: float, request: Any, xid: int | None = None) -> Any:
            if not isinstance(request, Connect):
                return invoke(timeout, request, xid)
            answer = invoke(min(timeout, self._answer_timeout), request, xid)
            if answer[0].time_out > 0:
                self.timeout = answer[0].time_out / 1000
            return answer

        def connect(*args: Any, timeout: float, **options: Any) -> Any:
            return create_connection(*args, timeout=min(timeout, self._answer_timeout), **options)

        connection._invoke, handler.create_connection = greet, connect
        handler.async_result = lambda: Pending(handler)

    @property
    def connected(self) -> bool:
        return self._live.is_set()

    @property
    def broken(self) -> bool:
        """Whether it has given up for good, as after a failed authentication."""
        routine = self.client._connection._connection_routine
        return routine is None or not routine.is_alive()

    def wait(self, until: float) -> bool:
        """Wait for the connection; whether it is there."""
        return self.connected or self._live.wait(max(0.0, until - self._clock()))

    def ask(self, method: str, *args: Any, until: float, **options: Any) -> Any:
        """The answer to ``<method>_async``; waits for the connection. Raises `ZooKeeperError`, and `NoZnode`.

        What only reads is asked again where the connection was lost, as when the leader dies.
        """
        while self.wait(until):
            try:
                return self.answer(self.send(method, *args, **options), until)
            except Unanswered:
                if method not in READS or self.connected:
                    raise
        raise Unanswered("not connected")

    def send(self, method: str, *args: Any, **options: Any) -> Any:
        """Send a request; `answer` waits for what comes back."""
        return getattr(self.client, f"{method}_async")(*args, **options)

    def answer(self, pending: Any, until: float) -> Any:
        """What came back, within the time for one answer and before ``until``."""
        if not pending.wait(max(0.0, min(self._answer_timeout, until - self._clock()))):
            raise Unanswered("no answer in time")
        error = pending.exception
        if error is None:
            return pending.value
        # Not the error itself: kazoo keeps that, and with its traceback all that our callers hold, in a cycle.
        meaning = next(ours for theirs, ours in self._errors.items() if isinstance(error, theirs))
        raise meaning(f"{type(error).__name__} {error}".strip())

    def unwatch(self, path: str, watcher: Any) -> None:
        """Forget a watch that nobody waits for any more: kazoo would keep it until something happens to ``path``."""
        self.client._data_watchers.get(path, set()).discard(watcher)

    def make_parents(self, path: str, until: float) -> None:
        """Make ``path``: its last znode a container, which the servers remove when it is no longer used."""
        from kazoo.protocol.serialization import Create2
        from kazoo.security import OPEN_ACL_UNSAFE

        class CreateContainer(Create2):  # type: ignore[misc]
            type = 19

        self.ask("ensure_path", path.rpartition("/")[0], until=until)
        pending = self.client.handler.async_result()
        self.client._call(CreateContainer(path, b"", OPEN_ACL_UNSAFE, CONTAINER), pending)
        try:
            self.answer(pending, until)
        except Declined:  # it exists, or the server is too old to know containers
            self.ask("ensure_path", path, until=until)

    def stop(self, timeout: float) -> None:
        """End the session, within ``timeout``: kazoo itself may wait for long on a server that hangs."""
        self._finalizer.detach()

        def stop() -> None:
            with contextlib.suppress(Exception):
                self.client.stop()
                self.client.close()

        ending = threading.Thread(target=stop, name="redlock-zookeeper-stop", daemon=True)
        ending.start()
        ending.join(timeout)

    def abandon(self) -> None:
        """In the child of a fork: the session is the parent's, and its threads are not here."""
        self._finalizer.detach()
        atexit.unregister(self.client.handler.stop)


# ── sessions whose owner was garbage-collected ───────────────────────────────────────────────

_collected: SimpleQueue[Session] = SimpleQueue()  # unlike other queues and thread starts, it may be used in a finalizer
_stopper: threading.Thread | None = None


def _stopped_with(owner: object, session: Session) -> weakref.finalize[..., object]:
    """End ``session`` when ``owner`` has been garbage-collected."""
    global _stopper  # noqa: PLW0603  (one thread for all sessions of the process)
    if _stopper is None:
        _stopper = threading.Thread(target=_stop_collected, name="redlock-zookeeper-stopper", daemon=True)
        _stopper.start()
    finalizer = weakref.finalize(owner, _collected.put, session)
    finalizer.atexit = False
    return finalizer


def _stop_collected() -> None:
    while True:
        _collected.get().stop(0)


@on_fork
def _begin() -> None:
    global _collected, _stopper
    _collected, _stopper = SimpleQueue(), None
