"""The kinds of locks whose waiters stand in line: see ``lua/line.lua``."""

from __future__ import annotations

from collections.abc import Sequence

from .lease import Claim, Refusal
from .primitives import Primitive, scripts
from .requests import Run
from .scripts import script

AS_THEY_CAME, READERS_BEHIND_WRITERS, PUT_BACK = 2, 1, 0  # the orders of the scripts


class Fair(Primitive):
    """A mutex that is had strictly in order of arrival."""

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        """`Primitive.take`, in which order."""
        run = super().take(claim, wait, node)
        return run._replace(args=(*run.args, b"%d" % self.order))

    def signals(self, claim: Claim, refusal: Refusal) -> Sequence[bytes]:
        """Who stands in line has a wake-up list of its own."""
        return (claim.keys.wake_of(claim.family),)


class ReadWrite(Fair):
    """One side of a lock that several may hold to read, or one to write."""

    def take(self, claim: Claim, wait: int = 0, node: int = 0) -> Run:
        """`Fair.take`, to read or to write, and who asks."""
        run = super().take(claim, wait, node)
        return run._replace(args=(*run.args, self.mode.encode(), claim.holder))


_ACQUIRE, _EXTEND, _RELEASE = scripts("mutex")
FAIR = Fair("mutex", script("fair_acquire"), _EXTEND, _RELEASE, mode="w", order=AS_THEY_CAME)
_TAKE, _GIVE, _PROLONG = script("rw_acquire"), script("rw_release"), script("shared_extend")
READ = ReadWrite("rwlock", _TAKE, _PROLONG, _GIVE, mode="r", order=AS_THEY_CAME)
WRITE = READ._replace(mode="w")
