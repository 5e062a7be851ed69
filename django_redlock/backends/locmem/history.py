"""The history of the locks of one location in memory, for the last hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...core.flow.requests import Flow
from ...history.minute_stats import ALL_LOCKS, MINUTES, OTHER_LOCKS, MinuteStats, merge_texts, read_minute
from ...history.store import Loss
from .table import LockTable


class MemoryHistory:
    """The history of one location: the counts of each minute by lock name, kept in the location's `LockTable`.

    ``find`` returns the `LockTable`, or ``None`` if the location has been cleared or was not used. The methods are
    flows (`core.flow`).
    """

    def __init__(self, find: Callable[[], LockTable | None]) -> None:
        self._find = find

    def add(self, minute: int, texts: Mapping[str, str], max_names: int) -> Flow[None]:
        """Add the counts in ``texts`` to ``minute`` (minutes since the epoch).

        Drops the counts of all minutes that are at least 60 minutes before ``minute``. ``texts``: the counts as text
        (see `history.minute_stats`) by lock name. Names beyond ``max_names`` are counted together.
        """
        yield from ()
        if (table := self._find()) is None:
            return
        with table.mutex:
            table.minutes = {each: kept for each, kept in table.minutes.items() if each > minute - MINUTES}
            kept = table.minutes.setdefault(minute, {})
            for name, text in texts.items():
                key = name if name in (ALL_LOCKS, *kept) or len(kept) <= max_names else OTHER_LOCKS
                kept[key] = merge_texts([kept.get(key, ""), text])

    def losses(self, minutes: Sequence[int]) -> Flow[list[Loss]]:
        """Return, for each of ``minutes``, a `Loss` for each lock that has counts in that minute.

        ``minutes``: minutes since the epoch.
        """
        yield from ()
        if (table := self._find()) is None:
            return []
        with table.mutex:
            kept = [item for minute in minutes for item in table.minutes.get(minute, {}).items()]
        read = [(name, read_minute(0.0, [text])) for name, text in kept if name not in (ALL_LOCKS, OTHER_LOCKS)]
        return [Loss(name, minute.lost, minute.forced) for name, minute in read]

    def read(self, name: str, minutes: Sequence[int]) -> Flow[list[MinuteStats]]:
        """Return the counts of the lock ``name`` in each of ``minutes`` (minutes since the epoch)."""
        yield from ()
        found: list[tuple[int, Mapping[str, str]]] = [(minute, {}) for minute in minutes]
        if (table := self._find()) is not None:
            with table.mutex:
                found = [(minute, table.minutes.get(minute, {})) for minute in minutes]
        return [read_minute(minute * 60.0, [texts.get(name, "")], OTHER_LOCKS not in texts) for minute, texts in found]
