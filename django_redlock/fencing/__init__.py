"""`FencedModel`: rows that remember the fencing token they were last written under, and refuse earlier ones.

A holder that is paused beyond its lease and then writes comes too late: ``StaleLock`` instead of its successor's work
overwritten. Importing this creates no table, and does not need ``django_redlock`` in ``INSTALLED_APPS``. Source of the
idea: Martin Kleppmann, "How to do distributed locking".
"""

from .model import FencedModel
from .queryset import FencedManager, FencedQuerySet

__all__ = ["FencedManager", "FencedModel", "FencedQuerySet"]
