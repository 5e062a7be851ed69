"""`FencedModel`: each row stores the largest fencing token of its writes, and refuses writes with a smaller token.

A holder whose lease has expired, for example during a pause, gets ``StaleLock`` and can't overwrite the data of the
next holder (Martin Kleppmann, "How to do distributed locking", 2016). Importing this package creates no table and does
not need ``django_redlock`` in ``INSTALLED_APPS``.
"""

from .model import FencedModel
from .queryset import FencedManager, FencedQuerySet

__all__ = ["FencedManager", "FencedModel", "FencedQuerySet"]
