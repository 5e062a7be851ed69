"""The mutex that protects the state of all handles. It is held for a few instructions at a time."""

from __future__ import annotations

from .. import fork
from ..thread_mutex import new_mutex

# A single mutex can be replaced in the child of a fork, where a thread of the parent may have held it.
# Reentrant: a signal handler may use a lock, too.
mutex = new_mutex()


@fork.on_fork
def _new_mutex() -> None:
    global mutex  # noqa: PLW0603  (only between processes)
    mutex = new_mutex()
