"""Adds a timeout to calls that have none: look-ups of host names, credential providers, other libraries' pools."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from ...core.process import fork

T = TypeVar("T")
MAX_OVERDUE = 8  # overdue calls at the same time; further calls fail at once until one of them has ended


@contextmanager
def redis_errors() -> Iterator[None]:
    """Raise redis-py's ``ConnectionError`` for an exception of another library, such as a credential provider's."""
    try:
        yield
    except (RedisError, OSError):
        raise
    except Exception as error:
        raise RedisConnectionError(f"{type(error).__name__}: {error}") from error


class BoundedCalls:
    """Runs each call in a separate thread, and stops waiting after a timeout. An overdue call goes on in its thread.

    While `MAX_OVERDUE` calls are overdue, further calls fail at once.
    """

    def __init__(self) -> None:
        self._reset()
        fork.on_fork(self._reset)  # the child has none of the threads

    def _reset(self) -> None:
        self._limits: dict[Future[Any], float] = {}  # call under way -> its time limit; kept by the call's thread

    def run(self, call: Callable[[], T], seconds: float, late: Callable[[T], object]) -> T:
        """Run ``call``, and return its result or raise its exception, as one of redis-py's errors or as ``OSError``.

        Raises ``TimeoutError`` after ``seconds``, or at once if `MAX_OVERDUE` calls are overdue. If the call returns
        later, ``late`` is called with the result. Raises redis-py's ``ConnectionError`` if no thread can be started.
        """
        now = time.monotonic()
        if sum(limit < now for limit in list(self._limits.values())) >= MAX_OVERDUE:
            raise TimeoutError("no reply in time, nor to earlier requests")
        future: Future[T] = Future()
        args = future, now + seconds, call, late
        work = partial(fork.run_postponing, self._call, *args, caller=threading.get_ident())
        try:
            try:
                threading.Thread(target=work, name="redlock-connect", daemon=True).start()
            except RuntimeError as error:  # no more threads may be started
                raise RedisConnectionError(str(error)) from error
            wait([future], seconds)
        except BaseException:  # interrupted
            if not future.cancel() and future.exception() is None:
                late(future.result())
            raise
        if future.cancel():
            raise TimeoutError("no reply in time")
        return future.result()

    def _call(self, future: Future[T], limit: float, call: Callable[[], T], late: Callable[[T], object]) -> None:
        self._limits[future] = limit
        try:
            with redis_errors():  # in the thread, which a signal handler's exception does not reach
                result = call()
        except BaseException as error:  # noqa: BLE001  (raised where the result is waited for)
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)
            else:
                late(result)
        finally:
            del self._limits[future]
