"""The last hour of each lock: counters by the minute, and where they are kept."""

from .store import alast_hour, last_hour

__all__ = ["alast_hour", "last_hour"]
