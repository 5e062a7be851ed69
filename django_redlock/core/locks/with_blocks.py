"""The ``with`` blocks of a handle, and the acquisition that each block releases."""

from __future__ import annotations

from ..process.caller import caller
from ..process.mutex import state_mutex

NO_TOKEN = b""  # the token of a `with` block that has nothing to release: its lease was handed off, or switch() failed
LOST_TOKEN = b"lost"  # the token of a `with` block whose lease was lost, and replaced by that of another thread or task


class WithBlocks(list[tuple[int, bytes]]):
    """The ``with`` blocks of one handle that were entered and not left, oldest first.

    Each entry has the thread or task that entered the block, and the token of the lease that the block releases.
    """

    __slots__ = ()

    def enter(self, token: bytes) -> None:
        """Add a block of the calling thread or task.

        ``token``: the token of the lease that the block releases at its end.
        """
        self.append((caller(), token))

    def _innermost(self) -> int:
        """Return the index of the innermost block of the calling thread or task; -1 if it has entered no block."""
        me = caller()
        return next((index for index in reversed(range(len(self))) if self[index][0] == me), -1)

    def have_lost(self, token: bytes) -> bool:
        """Return whether the caller is in a block whose lease was lost, and replaced by another in the same handle.

        ``token``: the token of the handle's current lease; ``b""`` if there is none.
        """
        if not [own for _, own in self if own != token]:
            return False  # the usual case, which needs no caller
        with state_mutex:
            index = self._innermost()
            own = self[index][1] if index >= 0 else NO_TOKEN
            return own == LOST_TOKEN or (NO_TOKEN not in (own, token) and own != token)

    def reacquired(self, token: bytes) -> None:
        """Set the token that all blocks of the caller release at their end.

        Called when the caller has acquired the lock again within its blocks, as `threading.Condition.wait` does. The
        blocks of a reentrant lock share one lease.
        """
        me = caller()
        with state_mutex:
            for index, (entered_by, _) in enumerate(self):
                if entered_by == me:
                    self[index] = me, token

    def replace(self, old: bytes, new: bytes) -> None:
        """Replace the token ``old`` by the token ``new`` in all blocks, which then release ``new`` at their end."""
        with state_mutex:
            self[:] = [(entered_by, new if token == old else token) for entered_by, token in self]

    def leave(self) -> bytes | None:
        """Remove the block that the caller leaves, and return its token; ``None`` if no block is entered.

        The caller leaves its innermost block. A thread or task that has entered no block leaves the oldest block of the
        handle.
        """
        with state_mutex:
            if len(self) > 1:
                return self.pop(max(0, self._innermost()))[1]
            return self.pop()[1] if self else None
