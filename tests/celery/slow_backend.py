"""A backend whose module is slow to import, as on a busy machine."""

import time

from django_redlock.backends.redis import RedisBackend

time.sleep(0.05)


class SlowBackend(RedisBackend):
    """One Redis."""
