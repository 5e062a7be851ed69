"""A ZooKeeper session with a timeout for every request, and a callback at the end of the session.

Only this module imports kazoo, and only when a backend is made.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from ...core.process.threads import Kind, start
from ...errors import LockUnavailable

READS = {"get", "get_children", "exists"}  # requests that may be repeated
CONTAINER = 4  # the flag of a znode that the servers remove when its last child has gone (ZooKeeper 3.5.1)


class Unanswered(LockUnavailable):
    """Raised when a request got no reply. ZooKeeper may have carried out the request, or may still do so."""


class Declined(LockUnavailable):
    """Raised when the server refused the request, for example for lack of permission."""


class NoZnode(LockUnavailable):
    """Raised when the znode of a request does not exist."""


def kazoo_client() -> Any:
    """Return kazoo's client class. Raises ``ModuleNotFoundError`` with an install hint if kazoo is missing."""
    try:
        from kazoo.client import KazooClient
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'ZooKeeperBackend needs the package kazoo: pip install "django-redlock[zookeeper]"', name=error.name
        ) from error
    return KazooClient


def _errors() -> dict[type[Exception], type[LockUnavailable]]:
    """Return a dict from kazoo's error classes to the errors to raise. The first matching class is used."""
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
    """A session with a ZooKeeper ensemble. All times are seconds of ``clock``.

    ``timeout``: the session timeout, replaced by the timeout that the server grants. ``answer_timeout``: the longest
    wait for one reply. ``ended`` is called when the session ends. A lost connection doesn't end the session, because
    kazoo reconnects in the background.
    """

    def __init__(
        self,
        hosts: str,
        timeout: float,
        answer_timeout: float,
        clock: Callable[[], float],
        ended: Callable[[], None],
    ) -> None:
        from kazoo.protocol.states import KazooState
        from kazoo.retry import KazooRetry

        self.timeout = timeout
        self._hosts, self._answer_timeout, self._clock = hosts, answer_timeout, clock
        self._errors = _errors()
        self.client = client = kazoo_client()(
            hosts, timeout=timeout, connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0)
        )
        self._adjust(client)
        self._listener = lambda state: ended() if state == KazooState.LOST else None
        client.add_listener(self._listener)
        self._live: threading.Event = client.start_async()

    def _adjust(self, client: Any) -> None:
        """Patch kazoo's ``client`` in three places for which kazoo has no option.

        - The session's ``timeout`` is set to the timeout that the server grants, which may be shorter than requested.
        - The wait for a server that accepts a connection and does not reply, for example while it starts, ends after
          ``answer_timeout``. kazoo would wait for the session timeout.
        - A ``KeyboardInterrupt`` while kazoo wakes its thread is raised. kazoo would treat it as a closed connection.
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
        """Whether kazoo no longer tries to connect, for example after a failed authentication."""
        routine = self.client._connection._connection_routine
        return routine is None or not routine.is_alive()

    def failure(self, kind: type[LockUnavailable], text: str) -> LockUnavailable:
        """Return an error of the class ``kind`` with the reason ``text``."""
        return kind("", f"ZooKeeper at {self._hosts} is unavailable: {text}", {self._hosts: ConnectionError(text)})

    def wait(self, until: float) -> bool:
        """Wait for the connection. Returns ``False`` if there is none by the time ``until``."""
        return self.connected or self._live.wait(max(0.0, until - self._clock()))

    def ask(self, method: str, *args: Any, until: float, **options: Any) -> Any:
        """Wait for the connection, call ``<method>_async`` of kazoo's client, and return the reply.

        The reply must arrive by ``until``. Repeats a read if the connection was lost, for example when the leader dies.
        Raises `Unanswered`, `Declined` and `NoZnode`.
        """
        while self.wait(until):
            try:
                return self.answer(self.send(method, *args, **options), until)
            except Unanswered:
                if method not in READS or self.connected:
                    raise
        raise self.failure(Unanswered, "not connected")

    def send(self, method: str, *args: Any, **options: Any) -> Any:
        """Call ``<method>_async`` of kazoo's client, and return its pending result, to pass to `answer`.

        Returns ``None``, for which `answer` raises, while the session is not connected.
        """
        return getattr(self.client, f"{method}_async")(*args, **options) if self.connected else None

    def answer(self, pending: Any, until: float) -> Any:
        """Wait for the reply to a request that was sent with `send`, and return the reply.

        The reply must arrive within ``answer_timeout`` and before ``until``. Raises as `ask` does.
        """
        if pending is None:
            raise self.failure(Unanswered, "not connected")
        if not pending.wait(max(0.0, min(self._answer_timeout, until - self._clock()))):
            raise self.failure(Unanswered, "no reply in time")
        error = pending.exception
        if error is None:
            return pending.value
        # Don't raise kazoo's own error: kazoo keeps a reference to it, and its traceback would keep callers' objects.
        meaning = next(ours for theirs, ours in self._errors.items() if isinstance(error, theirs))
        raise self.failure(meaning, f"{type(error).__name__} {error}".strip())

    def make_parents(self, path: str, until: float) -> None:
        """Create the znode ``path``, a container, which the servers remove when its last child has gone."""
        from kazoo.protocol.serialization import Create2
        from kazoo.security import OPEN_ACL_UNSAFE

        class CreateContainer(Create2):  # type: ignore[misc]
            type = 19

        self.ask("ensure_path", path.rpartition("/")[0], until=until)
        pending = self.client.handler.async_result()
        self.client._call(CreateContainer(path, b"", OPEN_ACL_UNSAFE, CONTAINER), pending)
        try:
            self.answer(pending, until)
        except Declined:  # the path exists, or the server is too old for containers
            self.ask("ensure_path", path, until=until)

    def stop(self, timeout: float, *, report: bool = True) -> None:
        """End the session in a separate thread, and wait up to ``timeout`` seconds for its end.

        The thread is needed because kazoo may block on a server that hangs. ``report``: whether the function ``ended``
        of the session (see `Session`) is called.
        """
        if not report:
            self.client.remove_listener(self._listener)

        def stop() -> None:
            with contextlib.suppress(Exception):
                self.client.stop()
                self.client.close()

        if (ending := start(Kind.CALL, stop)) is not None:
            ending.join(timeout)

    def abandon(self) -> None:
        """Discard the session in the child of a fork, because the session and its threads belong to the parent."""
        atexit.unregister(self.client.handler.stop)
