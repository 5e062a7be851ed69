"""``celery beat`` on several machines: a scheduler that ticks only while its process leads."""

from .scheduler import LeaderScheduler

__all__ = ["LeaderScheduler"]
