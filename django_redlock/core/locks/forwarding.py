"""Forwards calls of a handle that has several locks to the lock of the calling thread or task."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import wraps
from typing import Any


def forward_members(handle: type, lock: type, private: Iterable[str] = ()) -> None:
    """Add the public members of ``lock`` that ``handle`` lacks, and the members named in ``private``, to ``handle``.

    Each added member forwards to the lock that ``own_handle()`` returns.
    """
    for name in dir(lock):
        if name in private or not (name.startswith("_") or hasattr(handle, name)):
            setattr(handle, name, _forwarded(name, getattr(lock, name)))


def _forwarded(name: str, member: Any) -> Any:
    """Return a member for a handle that forwards to the same member of ``own_handle()``, which is called at each use.

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
