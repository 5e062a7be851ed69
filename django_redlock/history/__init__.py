"""The history of locks: counts by minute for the last hour, and the stores that keep the counts."""

from .store import alast_hour, last_hour, lost_names

__all__ = ["alast_hour", "last_hour", "lost_names"]
