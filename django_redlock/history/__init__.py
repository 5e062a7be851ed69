"""The history of locks: events per minute for the last hour, and the queue that passes lock events to listeners."""

from .minutes import HistoryEvent, MinuteStats, last_hour

__all__ = ["HistoryEvent", "MinuteStats", "last_hour"]
