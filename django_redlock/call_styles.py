"""One algorithm for blocking code and for asyncio: a coroutine that makes its calls through a `Blocking` or `Awaiting`.

The methods of `Blocking` never suspend, so `complete` runs such a coroutine without an event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AsyncExitStack
from contextvars import copy_context
from inspect import isawaitable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from .core.contract import Store
from .core.flow.drivers import adrive, drive
from .core.flow.requests import Flow
from .core.process.caller import check_may_block

T = TypeVar("T")
_UNSET = object()


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work``, a coroutine whose calls are all `Blocking`, to its end. Returns its result, or raises its error."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    work.close()
    raise RuntimeError("blocking code has awaited a coroutine that suspends")


async def run_to_end(work: Coroutine[Any, Any, T], cancellable: Callable[[], bool]) -> T:
    """Run ``work`` and return its result, or raise its exception.

    If the caller is cancelled, ``work`` is cancelled too as long as ``cancellable()`` returns true. Otherwise ``work``
    runs to its end before the ``CancelledError`` is raised, because cancelling a coroutine doesn't stop its threads
    (``sync_to_async``, ``asyncio.to_thread``).
    """
    context, cancelled = copy_context(), None
    task = asyncio.create_task(work, context=context)
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            if cancellable():
                task.cancel()
    for variable, value in context.items():  # for example the language that a view has activated
        if variable.get(_UNSET) is not value:
            variable.set(value)
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


class Blocking:
    """The calls of blocking code. A parameter of this type also takes `Awaiting`, the calls of asyncio."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the application. Under asyncio it may be a coroutine function."""
        return function(*args)

    async def query(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a plain function that may use the database. Under asyncio a thread calls it."""
        return function(*args)

    async def method(self, target: Any, name: str, *args: Any) -> Any:
        """Call ``target.name(*args)``. Under asyncio await ``target.aname(*args)``."""
        return getattr(target, name)(*args)

    async def drive(self, flow: Flow[T], store: Store) -> T:
        """Run ``flow``, a generator of requests to ``store``. Returns its result."""
        return drive(flow, store.perform)

    async def enter(self, stack: AsyncExitStack, lock: Any) -> Any:
        """Hold ``lock`` until ``stack`` ends. Returns the result of ``with lock``."""
        return stack.enter_context(lock)

    async def result(self, future: Future[Any], seconds: float | None, instead: str) -> Any:
        """Return the result of ``future``, which another thread or task sets.

        Raises ``TimeoutError`` after ``seconds``, and ``RuntimeError`` in a running event loop, which the other task
        may need. ``instead``: the function to use there, for the message.
        """
        check_may_block("this call", instead)
        return future.result(seconds)

    async def sleep(self, seconds: float) -> None:
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

    async def drive(self, flow: Flow[T], store: Store) -> T:
        return await adrive(flow, store.aperform)

    async def enter(self, stack: AsyncExitStack, lock: Any) -> Any:
        return await stack.enter_async_context(lock)

    async def result(self, future: Future[Any], seconds: float | None, instead: str) -> Any:
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), seconds)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
