"""The mutexes of this process. They are reentrant, because a signal handler may use locks, too."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

_RLock: Any = type(threading.RLock())


class SignalSafeRLock(_RLock):  # type: ignore[misc]  # Any: a greenlet library may have replaced the type
    """A ``threading.RLock`` for Python 3.14. A signal in its ``with`` statement does not leave it locked.

    Python 3.14 may run a signal handler after ``__enter__`` has returned and before the block has begun. If the handler
    raises an exception, ``__exit__`` is not called (https://github.com/python/cpython/issues/148874). A method written
    in Python returns without that check.
    """

    def __enter__(self) -> bool:
        before = self._recursion_count()
        try:
            return bool(self.acquire())
        except BaseException:
            if self._recursion_count() > before:
                self.release()
            raise


if TYPE_CHECKING or not (3, 14) <= sys.version_info < (3, 15) or not hasattr(_RLock, "_recursion_count"):
    _Mutex = threading.RLock
else:
    _Mutex = SignalSafeRLock

_mutexes: WeakSet[Any] = WeakSet()


def new_mutex() -> threading.RLock:
    """Return a new mutex. It is free in the child of a fork, even if another thread of the parent held it."""
    mutex = _Mutex()
    _mutexes.add(mutex)
    return mutex


def free_in_child() -> None:
    """Free each mutex that another thread of the parent held. The thread that forked keeps its mutexes."""
    for mutex in list(_mutexes):
        if not mutex._is_owned():
            mutex._at_fork_reinit()


# Protects handles, their renewal and the local queues, for a few instructions at a time. One mutex for all of them: the
# garbage collector may call `release()` of a lock within any such section, which would lock several in any order.
# Always entered directly, never through a condition: an exception of a signal handler in the Python code of a condition
# would leave the mutex locked.
state_mutex = new_mutex()
