"""The history of locks: counts by minute for the last hour, and the queue that hands lock events to listeners."""

from .minutes import HistoryEvent, MinuteStats, last_hour

__all__ = ["HistoryEvent", "MinuteStats", "last_hour"]
