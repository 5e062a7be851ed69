"""One algorithm for blocking code and for asyncio: a coroutine that makes its calls through `Blocking` or `Awaiting`.

The calls of `Blocking` never suspend, so `complete` runs such a coroutine without an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

T = TypeVar("T")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``, a coroutine whose calls are all `Blocking`, to its end. Returns its result, or raises its error."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("blocking code has awaited a coroutine that suspends")


class Blocking:
    """The calls of blocking code."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the user. In asyncio it may be a coroutine function."""
        return function(*args)

    async def query(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a plain function that may use the database. In asyncio a thread calls it."""
        return function(*args)

    async def method(self, target: Any, name: str, *args: Any) -> Any:
        """Call ``target.name(*args)``. In asyncio its twin, with an ``a`` before the name, is awaited."""
        return getattr(target, name)(*args)

    def holding(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that holds ``lock``."""
        return _Holding(lock)

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        time.sleep(seconds)  # noqa: ASYNC251  (no event loop runs this coroutine)


class Awaiting(Blocking):
    """The calls of asyncio."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        result = function(*args)
        return await result if isawaitable(result) else result

    async def query(self, function: Callable[..., Any], *args: Any) -> Any:
        return await sync_to_async(function)(*args)

    async def method(self, target: Any, name: str, *args: Any) -> Any:
        return await getattr(target, f"a{name}")(*args)

    def holding(self, lock: Any) -> AbstractAsyncContextManager[Any]:
        held: AbstractAsyncContextManager[Any] = lock
        return held

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Holding:
    """``async with`` for a lock of blocking code."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def __aenter__(self) -> Any:
        return self._lock.__enter__()

    async def __aexit__(self, *error: object) -> Any:
        return self._lock.__exit__(*error)
