"""A scheduler for ``celery beat`` on several machines: only one process, the elected leader, sends tasks."""

from .scheduler import LeaderScheduler

__all__ = ["LeaderScheduler"]
