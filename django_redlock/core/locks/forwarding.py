"""Forwards calls of a handle that has several locks to the lock of the calling thread or task."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import wraps
from typing import Any


def forward_members(handle: type, lock: type, private: Iterable[str] = ()) -> None:
    """Add to ``handle`` the public members of ``lock`` that it lacks, and the members named in ``private``.

    Each added member forwards to the lock that ``handle.own_handle()`` returns at the time of the call.
    """
    for name in dir(lock):
        if name in private or not (name.startswith("_") or hasattr(handle, name)):
            setattr(handle, name, _forwarded(name, getattr(lock, name)))


def _forwarded(name: str, member: Any) -> Any:
    """Return a member that forwards to the member ``name`` of ``own_handle()``. Each use calls ``own_handle()`` anew.

    ``member``: the property, coroutine function or function called ``name``.
    """
    if isinstance(member, property):
        return property(lambda self: getattr(self.own_handle(), name), doc=member.__doc__)
    if inspect.iscoroutinefunction(member):

        async def atwin(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await getattr(self.own_handle(), name)(*args, **kwargs)

        return wraps(member)(atwin)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.own_handle(), name)(*args, **kwargs)

    return wraps(member)(forward)
