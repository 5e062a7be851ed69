"""Calls without a time limit of their own, that are given up: looking up a host, asking somebody else's pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from redis.exceptions import ConnectionError as RedisConnectionError

from ..core import fork

T = TypeVar("T")
MOST = 8  # calls that may be overdue at the same time: then there are no new ones until one of them has ended


class BoundedCalls:
    """Each call has a thread of its own, in which it goes on when it is given up."""

    def __init__(self) -> None:
        self._begin()
        fork.on_fork(self._begin)  # the threads are the parent's

    def _begin(self) -> None:
        self._limits: dict[Future[Any], float] = {}  # of the calls that are under way

    def run(self, call: Callable[[], T], seconds: float, late: Callable[[T], object]) -> T:
        """What ``call`` returns or raises; ``TimeoutError`` after ``seconds``: ``late`` gets what it returns then."""
        now = time.monotonic()
        if sum(limit < now for limit in list(self._limits.values())) >= MOST:
            raise TimeoutError("no answer in time, nor to those who asked before")
        future: Future[T] = Future()
        self._limits[future] = now + seconds
        work = self._call, future, call, late
        try:
            threading.Thread(target=fork.run, args=work, name="redlock-connect", daemon=True).start()
        except RuntimeError as error:  # there may be no more threads
            del self._limits[future]
            raise RedisConnectionError(str(error)) from error
        try:
            wait([future], seconds)
        except BaseException:  # interrupted
            if not future.cancel() and future.exception() is None:
                late(future.result())
            raise
        if future.cancel():
            raise TimeoutError("no answer in time")
        return future.result()

    def _call(self, future: Future[T], call: Callable[[], T], late: Callable[[T], object]) -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  (it is raised where the result is waited for)
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(result)
            else:
                late(result)
        finally:
            del self._limits[future]
