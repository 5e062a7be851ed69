"""The mutex that protects what threads share. It is reentrant, because a signal handler may use locks, too."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

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
    new_mutex = threading.RLock
else:
    new_mutex = SignalSafeRLock
