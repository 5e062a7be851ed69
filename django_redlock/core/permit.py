"""One of several that may be held at once: a permit of a semaphore, or a stripe."""

from __future__ import annotations

from typing import Any

from . import fork, holding
from .lease import Lease, Refusal
from .lock import Lock
from .requests import Flow
from .tickets import Bell, Turn

LOOK = 5.0  # seconds after which one who waits looks again, whatever became of who went before


class Permit(Lock):
    """A lock of which the store would grant one to each of those who share the handle.

    They get in one at a time, as they came: while one of them holds it, or asks the store for it, the others wait here.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._generation = fork.generation
        self._line: dict[object, Bell | None] = {}  # first come first; `None`: it has rung already

    def _acquiring(self, wait: float, since: float | None = None) -> Flow[Lease | Refusal]:
        clock, me = self._store.clock, object()
        start = clock() if since is None else since
        try:
            while (bell := self._stand(me)) is not None:
                left = start + wait - clock()
                if left <= 0:
                    return self._refused(start)
                yield Turn(bell, min(left, self.remaining or LOOK))
            return (yield from super()._acquiring(wait, start))
        finally:
            self._step_out(me)

    def _stand(self, me: object) -> Bell | None:
        """Be in line; what rings when it may be one's turn, or ``None`` if it is."""
        with holding._mutex:
            if self._generation != fork.generation:  # a fork's child: those who wait are the parent's
                self._line, self._generation = {}, fork.generation
            turn = next(iter(self._line), me) is me and not self.remaining
            bell = self._line[me] = None if turn else Bell()
            return bell

    def _step_out(self, me: object) -> None:
        with holding._mutex:
            self._line.pop(me, None)
            self._call_first()

    def _call_first(self) -> None:
        with holding._mutex:
            first = next(iter(self._line), None)
            if first is not None and not self.remaining and (bell := self._line[first]) is not None:
                self._line[first] = None
                bell.ring()

    def _refused(self, start: float) -> Refusal:
        lease, left = self._current(), self.remaining
        holder = lease.mine.owner.decode(errors="replace") if lease else ""
        self._report("refused", waited=self._store.clock() - start, reason="taken", holder=holder)
        return Refusal(left, holder)

    def _releasing(self, token: bytes | None = None) -> Flow[None]:
        try:
            yield from super()._releasing(token)
        finally:
            self._call_first()

    def _lose(self, lease: Lease, reason: str) -> None:
        super()._lose(lease, reason)
        self._call_first()
