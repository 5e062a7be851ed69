"""The ``with`` blocks of a handle: which block releases which acquisition."""

from __future__ import annotations

from ..context import caller
from . import state_mutex


class WithBlocks(list[tuple[int, bytes]]):
    """For each entered block of one handle, oldest first: the thread or task, and the token that it acquired."""

    __slots__ = ()

    def enter(self, token: bytes) -> None:
        """Add a block of the calling thread or task."""
        self.append((caller(), token))

    def _innermost(self) -> int:
        """The index of the innermost block of the calling thread or task; -1 when it has entered none."""
        me = caller()
        return next((index for index in reversed(range(len(self))) if self[index][0] == me), -1)

    def reacquired(self, token: bytes) -> None:
        """The caller's innermost block releases ``token``: the block has released and acquired again.

        `threading.Condition.wait` does that.
        """
        with state_mutex.mutex:
            if (index := self._innermost()) >= 0:
                self[index] = self[index][0], token

    def replace(self, old: bytes, new: bytes) -> None:
        """Blocks that would release the token ``old`` release ``new``."""
        with state_mutex.mutex:
            self[:] = [(entered_by, new if token == old else token) for entered_by, token in self]

    def leave(self) -> bytes | None:
        """Remove the block that is left now and return its token; ``None`` when none was entered.

        The block is the caller's innermost one. A thread or task without a block of its own leaves the oldest block.
        """
        with state_mutex.mutex:
            if len(self) > 1:
                return self.pop(max(0, self._innermost()))[1]
            return self.pop()[1] if self else None
