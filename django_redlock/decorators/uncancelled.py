"""`run_to_end` runs a coroutine to its end although its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_UNSET = object()


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
