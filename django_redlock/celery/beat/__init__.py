"""A scheduler that runs ``celery beat`` on several machines. Of all processes only one, the leader, sends tasks."""

from .scheduler import LeaderScheduler

__all__ = ["LeaderScheduler"]
